"""Run the models of the corpus under sanitizers: `make sanitize`.

Addresses, undefined behaviour and leaks: every case of the corpus, whose outputs must be the strict profile's bits, and
the damaged and hostile files of tests/malformed. Threads: the pool, shared sessions under 8 callers, and a part of the
corpus run by 8 callers at once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from corpus import ROOT, listed
from sanitized import build

ADDRESS = ROOT / "build" / "fuzz"
THREAD = ROOT / "build" / "thread"
DAMAGED = (str(ROOT / "tests" / "malformed"), str(ROOT / "tests" / "unit" / "kernels" / "test_mutated_nodes.py"))
BINS = str(ROOT / "tests" / "data" / "bins")


def every(path: Path, stride: int) -> Path:
    """Write a list of every stride-th line and the real models; return it."""
    lines = path.read_text().splitlines()
    kept = [line for k, line in enumerate(lines) if k % stride == 0 or line.startswith("model ")]
    part = path.with_name("part.txt")
    part.write_text("\n".join(kept) + "\n")
    return part


def run(what: str, command: list[str | Path], **environment: str) -> bool:
    """Run one check; print how it ended and, where it failed, its last words."""
    start = time.monotonic()
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, **environment},
    )
    end = done.stdout.strip().splitlines()[-1:] or [""]
    print(
        f"{what}: {'ok' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - start:.0f} s; {end[0]}",
        flush=True,
    )
    if done.returncode:
        print(done.stdout[-8000:])
    return done.returncode == 0


def damaged_files(folder: Path) -> bool:
    """Write every file that the tests of damaged and hostile files open."""
    shutil.rmtree(folder, ignore_errors=True)
    environment = {"OPFORGE_KEPT_FILES": str(folder), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.malformed.kept", "-p", "no:cacheprovider", *DAMAGED]
    return run("damaged files are written", [*command, f"--rootdir={ROOT}"], **environment)


def main() -> int:
    """Build and run; 0 when no sanitizer has anything to say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="all of onnx's tests, under the thread sanitizer too")
    parser.add_argument("--runs", type=int, default=200, help="of shared sessions, by 8 callers")
    options = parser.parse_args()
    cases = listed(options.full)
    build(ADDRESS, "fuzzer-no-link,address,undefined", ["run_list", "open_all"])
    build(THREAD, "thread", ["run_list", "shared_test", "pool_test"])
    strict = {
        "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_init_order=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    address = ADDRESS / "tests" / "cpp" / "run_list"
    good = run("addresses, undefined behaviour, leaks", [address, cases, "--threads", "2"], **strict)
    files = ADDRESS / "damaged"
    opener = ADDRESS / "tests" / "cpp" / "open_all"
    good = damaged_files(files) and run("damaged and hostile files", [opener, files], **strict) and good
    races = {"TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0"}
    runs = str(-(-options.runs // 8))  # of each of 8 callers
    good = run("races of the pool", [THREAD / "runtime" / "pool_test"], **races) and good
    good = run("races of shared sessions", [THREAD / "runtime" / "shared_test", BINS, runs], **races) and good
    callers = ["--callers", "8", "--threads", "2", "--repeat", "2"]
    part = cases if options.full else every(cases, 12)
    return 0 if run("races of models", [THREAD / "tests" / "cpp" / "run_list", part, *callers], **races) and good else 1


if __name__ == "__main__":
    sys.exit(main())
