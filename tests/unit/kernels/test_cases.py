"""Every kernel against float64 references, on every instruction set and number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opforge.bin.native import native
from tests.unit.kernels.report import FAMILIES, run_family

LEVELS = ("baseline", "v3", "v4")
_seen: dict[str, str] = {}


def others() -> list[str]:
    """The levels that this machine runs beside the one of this process."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    runs = [level for level, flag in zip(LEVELS, ("", " avx2 ", " avx512vl "), strict=True) if flag in flags]
    return [level for level in runs if level != native().isa()]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_results_and_threads(family):
    _seen.update(run_family(family, (1, 2, 8)))


def test_instruction_sets_agree():
    """All levels are right; those of the fast profile give equal bits."""
    results = {native().isa(): _seen}
    for level in others():
        environment = {**os.environ, "OPFORGE_ISA": level}
        command = [sys.executable, "-m", "tests.unit.kernels.report"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{level}: {done.stderr[-2000:]}"
        results[level] = json.loads(done.stdout)
    if "v3" in results and "v4" in results:
        shared = results["v3"].keys() & results["v4"].keys()
        different = [name for name in sorted(shared) if results["v3"][name] != results["v4"][name]]
        assert not different, f"v3 and v4 differ: {different[:10]}"
