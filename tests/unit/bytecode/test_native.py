"""runtime/bytecode/interpreter_test.cpp under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.bytecode.programs import ROOT

FLAGS = ["-std=c++17", "-O1", "-g1", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-ffp-contract=off",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread"]  # fmt: skip


@pytest.mark.compiler
def test_sanitized(compiler: str, tmp_path: Path) -> None:
    runtime = ROOT / "runtime"
    sources = [
        *(runtime / "bytecode").glob("*.cpp"),
        *(runtime / "bytecode/isa").glob("*.cpp"),
        runtime / "isa_select.cpp",
    ]
    includes = [f"-I{runtime}", f"-I{ROOT / 'include'}", "-DOPFORGE_ISA=baseline"]

    def build(source: Path) -> Path:
        target = tmp_path / f"{source.parent.name}_{source.stem}.o"
        command = [compiler, *FLAGS, *includes, "-c", str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(build, sources))
    program = tmp_path / "interpreter_test"
    link = [compiler, *FLAGS, *map(str, objects), "-o", str(program)]
    done = subprocess.run(link, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "all checks passed\n"), done.stdout[-2000:] + done.stderr[-3000:]
