"""The runtime library stays small enough for an edge device."""

import shutil
import subprocess

import pytest

from opforge._paths import runtime_library

LIMIT = 4 << 20


@pytest.mark.skipif(shutil.which("strip") is None, reason="needs strip (binutils)")
def test_stripped_library_is_at_most_four_mebibytes(tmp_path):
    stripped = tmp_path / "libopforge.so"
    subprocess.run(["strip", "-s", "-o", stripped, runtime_library()], check=True)
    assert stripped.stat().st_size <= LIMIT
