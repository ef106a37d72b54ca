"""Format all C and C++ sources, or check them with --check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("include", "runtime", "adapters", "tests", "src/opforge/ops", "examples")
SUFFIXES = {".c", ".cc", ".cpp", ".h"}


def main(check: bool) -> int:
    """Run clang-format over the tree; return its exit status."""
    files = sorted(p for f in FOLDERS for p in (ROOT / f).rglob("*") if p.suffix in SUFFIXES and p.is_file())
    tool = Path(sys.executable).with_name("clang-format")
    mode = ["--dry-run", "-Werror"] if check else ["-i"]
    return subprocess.run([tool, *mode, *files], check=False).returncode


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
