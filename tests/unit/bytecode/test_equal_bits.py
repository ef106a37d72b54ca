"""The interpreter and the compiled kernels of the same program give the same bits, at every vector width."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import FACTOR
from tests.unit.bytecode.conftest import FAST, STRICT
from tests.unit.bytecode.programs import ROOT, STORAGES, Kernels, compile_programs, random_program
from tests.unit.bytecode.run_programs import digests

SEEDS = range(40, 40 + 10 * FACTOR)
HOST_LEVELS = {"v4": "avx512vl", "v3": "avx2"}


def interpret(isa: str) -> dict[tuple[int, str], list[str]]:
    environment = {
        **os.environ,
        "OPFORGE_ISA": isa,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path]),
    }
    arguments = [f"{SEEDS.start}:{SEEDS.stop}", ",".join(STORAGES)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.bytecode.run_programs", *arguments],
        capture_output=True, text=True, env=environment, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    return {(int(seed), storage): values for seed, storage, *values in rows}


def compiled(folder: Path, flags: list[str]) -> dict[tuple[int, str], list[str]]:
    kernels: list[Kernels] = compile_programs([random_program(s) for s in SEEDS], folder, flags)
    return {(s, name): digests(k, s, name) for s, k in zip(SEEDS, kernels, strict=True) for name in STORAGES}


def differences(a: dict[tuple[int, str], list[str]], b: dict[tuple[int, str], list[str]]) -> list[tuple[int, str, int]]:
    assert a.keys() == b.keys()
    return [(*key, k) for key in a for k, (x, y) in enumerate(zip(a[key], b[key], strict=True)) if x != y]


@pytest.mark.compiler
def test_fast_profile(compiler: str, tmp_path: Path) -> None:
    flags = Path("/proc/cpuinfo").read_text()
    if "fma" not in flags or "avx2" not in flags:
        pytest.skip("this machine has no FMA: only the strict profile exists here")
    expected = compiled(tmp_path, FAST)
    assert len({d for row in expected.values() for d in row}) > 300  # the digests say something
    for isa, needed in HOST_LEVELS.items():
        if needed in flags:
            assert differences(interpret(isa), expected) == [], isa


@pytest.mark.compiler
def test_strict_profile(compiler: str, tmp_path: Path) -> None:
    assert differences(interpret("baseline"), compiled(tmp_path, STRICT)) == []
