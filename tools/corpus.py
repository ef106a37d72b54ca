"""Write the corpus of models and what they give on this machine: what `make cross` and `make sanitize` compare with.

build/corpus/small (three tests of each ONNX operator) or, with --full, build/corpus/full (all that compile).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNNER = ROOT / "build" / "dev" / "tests" / "cpp" / "run_list"
FAST = ["--suffix", ".fast"]
"""Outputs of the fast profile (v3, which every machine that builds this has) beside those of the strict one."""


def listed(full: bool) -> Path:
    """Return the path of the list of all cases."""
    return ROOT / "build" / "corpus" / ("full" if full else "small") / "all.txt"


def main() -> int:
    """Write the cases, run them, check that one and two threads agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="every test of onnx's suite that compiles")
    options = parser.parse_args()
    path = listed(options.full)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    size = ["--every"] if options.full else ["--stride", "4"]
    command = [sys.executable, "-W", "ignore", "-m", "tests.corpus", str(path.parent), *size]
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    path.write_text("".join(part.read_text() for part in sorted(path.parent.glob("*/list.txt"))))
    for isa, suffix in (("baseline", []), ("v3", FAST)):
        subprocess.run([RUNNER, path, "--write", *suffix], check=True, env={**environment, "OPFORGE_ISA": isa})
    checks = [(["--threads", "2"], {}), (["--threads", "8", "--callers", "8"], {}), ([], {"OPFORGE_NO_REUSE": "1"})]
    for arguments, extra in checks:
        subprocess.run([RUNNER, path, *arguments], check=True, env={**environment, "OPFORGE_ISA": "baseline", **extra})
    return 0


if __name__ == "__main__":
    sys.exit(main())
