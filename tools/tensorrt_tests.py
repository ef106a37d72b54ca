"""Install the parts of TensorRT that work without a GPU into a folder of their own, and run the tests that need them.

The folder, build/tensorrt, stands before the environment's own packages on the path; nothing else is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "tensorrt"
REQUIREMENTS = ROOT / "requirements" / "tensorrt.txt"
TESTS = ("tests/unit/tensorrt_rtx",)


def install() -> Path:
    """Return the folder that holds the packages of requirements/tensorrt.txt."""
    text, done = REQUIREMENTS.read_text(encoding="utf-8"), FOLDER / "installed.txt"
    if not done.is_file() or done.read_text(encoding="utf-8") != text:
        shutil.rmtree(FOLDER, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(FOLDER)]
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
        done.write_text(text, encoding="utf-8")
    return FOLDER


def main(arguments: list[str]) -> int:
    """Run the tests."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or TESTS)]
    path = os.pathsep.join([str(install()), str(ROOT / "src"), str(ROOT)])
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
