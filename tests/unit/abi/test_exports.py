"""What the libraries of the package show: names that somebody looks up, and no template of the standard library."""

import re
import subprocess

import pytest

from opforge._paths import library_dir

FILES = sorted(library_dir().glob("libopforge*.so"))
LOOKED_UP = re.compile(r"opforge_\w+|RegisterCustomOps|CreateEpFactories|ReleaseEpFactory")


@pytest.mark.compiler  # which brings nm
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_names_that_somebody_looks_up(file):
    shown = subprocess.run(["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in shown.splitlines()]
    assert names and not [name for name in names if not LOOKED_UP.fullmatch(name)]


def test_the_libraries_are_there():
    assert {"libopforge", "libopforge_torch", "libopforge_onnxruntime"} <= {file.stem for file in FILES}
