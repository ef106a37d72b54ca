"""What the tests of the bytecode share: the flags of the C++ that they compile."""

from __future__ import annotations

import shutil

import pytest

FAST = ["-march=native", "-mprefer-vector-width=512"]
STRICT = [*FAST, "-DOPFORGE_PROFILE_STRICT=1"]


@pytest.fixture(scope="session")
def compiler() -> str:
    path = shutil.which("g++")
    if path is None:
        pytest.skip("needs a C++ compiler (g++)")
    return path
