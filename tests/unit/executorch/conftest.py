"""ExecuTorch is in no environment of `make test`: `make executorch` installs it apart and runs this folder.

The hand-written kernel library, registered with PyTorch and ExecuTorch, and what lowers a function and opens it.
"""

import subprocess
from importlib import util
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data"
INCLUDE = Path(__file__).parents[3] / "include"
collect_ignore_glob = [] if util.find_spec("executorch") else ["test_*.py"]


@pytest.fixture(scope="session")
def hand_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the hand-written library."""
    path = tmp_path_factory.mktemp("handwritten") / "libhandwritten.so"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", f"-I{INCLUDE}"]
    subprocess.run(["cc", *flags, str(DATA / "handwritten_library.c"), "-o", str(path), "-lm"], check=True)
    return path


@pytest.fixture(scope="session")
def hand(hand_library: Path):
    """Its operators in torch.ops."""
    import torch

    import opforge.executorch
    from opforge.build import load_library

    opforge.executorch.register_library(load_library(hand_library))
    return torch.ops.test_hand


@pytest.fixture
def lowered(tmp_path):
    """lowered(function, *tensors, dynamic=...) gives a session of the function, lowered for such tensors."""
    import torch

    import opforge.executorch

    class Function(torch.nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, *tensors):
            return self.function(*tensors)

    def make(function, *tensors, dynamic=None, **options):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.pte"
        shapes = None if dynamic is None else {"tensors": tuple(dynamic)}
        opforge.executorch.lower(Function(function), tensors, path, dynamic_shapes=shapes)
        return opforge.executorch.session(path, **options)

    return make
