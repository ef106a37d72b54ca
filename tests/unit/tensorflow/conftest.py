"""The hand-written kernel library, registered with TensorFlow."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
DATA = Path(__file__).parents[2] / "data"
INCLUDE = Path(__file__).parents[3] / "include"


@pytest.fixture(scope="session")
def hand(tmp_path_factory: pytest.TempPathFactory):
    """Its operators as functions, by snake_case name."""
    import opforge.tensorflow
    from opforge.build import load_library
    from opforge.schema import snake_case

    path = tmp_path_factory.mktemp("handwritten") / "libhandwritten.so"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", f"-I{INCLUDE}"]
    subprocess.run(["cc", *flags, str(DATA / "handwritten_library.c"), "-o", str(path), "-lm"], check=True)
    entries = opforge.tensorflow.register_library(load_library(path))
    return SimpleNamespace(**{snake_case(e.library.name): opforge.tensorflow.function(e.key) for e in entries})
