"""CUDA libraries for devices: a toolkit that is found, and kernels that its nvcc compiles."""

from __future__ import annotations

from opforge.build.cuda.architectures import chosen_architectures
from opforge.build.cuda.builder import build_cuda_library
from opforge.build.cuda.toolkit import Toolkit, find_toolkit

__all__ = [
    "Toolkit",
    "build_cuda_library",
    "chosen_architectures",
    "find_toolkit",
]
