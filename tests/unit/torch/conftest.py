"""The tests of the PyTorch host run once per route: the route is fixed per process, so each is a pytest of its own.

Started as usual, only test_routes.py is collected; it runs this folder (and tests/conformance/torch) in one child per
route. With OPFORGE_TORCH_ROUTE set, as the children have it, the tests themselves are collected.
"""

import os
import subprocess
from pathlib import Path

import pytest

ROUTE = os.environ.get("OPFORGE_TORCH_ROUTE", "")
_OWN = sorted(path.name for path in Path(__file__).parent.glob("test_*.py"))
collect_ignore_glob = ["test_routes.py"] if ROUTE else [name for name in _OWN if name != "test_routes.py"]

DATA = Path(__file__).parents[2] / "data"
INCLUDE = Path(__file__).parents[3] / "include"


@pytest.fixture(scope="session")
def handwritten_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the hand-written kernel library with the C compiler."""
    path = tmp_path_factory.mktemp("handwritten") / "libhandwritten.so"
    source = DATA / "handwritten_library.c"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", f"-I{INCLUDE}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(path), "-lm"], check=True)
    return path


@pytest.fixture(scope="session")
def hand(handwritten_path: Path):
    """Register the hand-written library; gives its namespace in torch.ops."""
    import torch

    import opforge.torch
    from opforge.build import load_library

    opforge.torch.register_library(load_library(handwritten_path))
    return torch.ops.test_hand
