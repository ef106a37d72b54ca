"""Tests of CUDA kernels on a GPU. Where there is none each is skipped with the reason; `make device-check` runs them.

In a rehearsal (OPFORGE_DEVICE_CHECK=emulated) a fake driver stands for the GPU and the emulator's kernels for CUDA's:
the tests run as they are, but for those that are marked `gpu`.
"""

import os
from pathlib import Path

import pytest

from opforge.build import device_library
from opforge.build.cuda_driver import find_devices
from opforge.cuda.device import Session

REHEARSING = os.environ.get("OPFORGE_DEVICE_CHECK") == "emulated"


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a real GPU, not the one of a rehearsal")


def pytest_collection_modifyitems(items):
    reason = find_devices().reason
    here = Path(__file__).parent
    for item in [item for item in items if here in item.path.parents]:  # pytest gives those of all folders
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {reason}"))
        elif REHEARSING and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no GPU: a rehearsal"))


@pytest.fixture
def session():
    """The first GPU; what is put there is freed after the test."""
    with Session() as opened:
        yield opened


@pytest.fixture(scope="session")
def library():
    """Give the library with an operator's kernels for CUDA."""
    return lambda operator: device_library(operator, "cuda")
