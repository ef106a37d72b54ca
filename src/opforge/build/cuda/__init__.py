"""CUDA libraries for devices: a toolkit that is found, kernels that nvcc compiles, what the driver says of devices."""

from __future__ import annotations

from opforge.build.cuda.architectures import chosen_architectures
from opforge.build.cuda.builder import build_cuda_library
from opforge.build.cuda.driver import GPU, Devices, find_devices
from opforge.build.cuda.toolkit import Toolkit, find_toolkit

__all__ = [
    "GPU",
    "Devices",
    "Toolkit",
    "build_cuda_library",
    "chosen_architectures",
    "find_devices",
    "find_toolkit",
]
