"""The runtime library stays small enough for an edge device."""

import subprocess

from opforge._paths import runtime_library

LIMIT = 4 << 20


def test_stripped_library_is_at_most_four_mebibytes(tmp_path):
    stripped = tmp_path / "libopforge.so"
    subprocess.run(["strip", "-s", "-o", stripped, runtime_library()], check=True)
    assert stripped.stat().st_size <= LIMIT
