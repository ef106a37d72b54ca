"""A stand-in for tensorrt, a driver whose device memory is the host's, and CUDA kernels in the emulator."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.build import cuda_driver, load_library
from opforge.build.toolchain import find_compiler
from opforge.cuda import emulate_operators
from opforge.engines.tensorrt import _kernels
from opforge.ops import custom_gelu, mish, swish
from tests.unit.tensorrt import double

FAKE_DRIVER = Path(of.__file__).parents[2] / "tools" / "device_check" / "fake_driver.cpp"


@of.formula("test.trt::Gate")
def gate(x, w, *, slope: float = 0.5, bias: float = 0.0):
    """Use two inputs that broadcast, and attributes."""
    return of.where(x > w, x * w + bias, slope * w)


OPERATORS = (custom_gelu, mish, swish, gate)


@cache
def emulated():
    return load_library(emulate_operators(list(OPERATORS)).path)


@pytest.fixture
def trt(monkeypatch):
    """The stand-in, as the package that opforge imports, with an empty registry and no kernels."""
    monkeypatch.setitem(sys.modules, "tensorrt", double)
    monkeypatch.setattr(double.get_plugin_registry(), "creators", {})
    monkeypatch.setattr("opforge.engines.tensorrt._register._creators", {})
    monkeypatch.setattr(_kernels, "_provided", {})
    return double


@pytest.fixture
def kernels(trt):
    """The same with emulated CUDA kernels of `OPERATORS`."""
    _kernels.provide(emulated())
    return trt


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory):
    made = tmp_path_factory.getbasetemp() / "trt_driver.so"
    command = [*find_compiler().command, "-std=c++17", "-O1", "-shared", "-fPIC", FAKE_DRIVER, "-o", made]
    subprocess.run(command, check=True)
    return made


@pytest.fixture
def gpu(monkeypatch, driver_library):
    """A machine with a GPU, as far as the driver tells."""
    monkeypatch.setenv("OPFORGE_CUDA_DRIVER", str(driver_library))
    for function in (cuda_driver.find_devices, cuda_driver._started):
        function.cache_clear()
    yield
    for function in (cuda_driver.find_devices, cuda_driver._started):
        function.cache_clear()


@pytest.fixture
def rng():
    return np.random.default_rng(5)
