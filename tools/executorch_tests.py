"""Install ExecuTorch into a folder of its own and run its tests, and the examples of its page.

The folder, build/executorch, stands before the environment's own packages on the path; nothing else is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "executorch"
REQUIREMENTS = ROOT / "requirements" / "executorch.txt"
_MODELS = ("MiniLM with CustomGELU", "case study", "sparse", "versions")
TESTS = (
    "tests/unit/executorch",
    "tests/unit/test_docs.py::test_examples_run[docs/executorch.md]",
    "tests/conformance/test_models.py::test_operators_run_where_the_page_says[executorch]",
    *(f"tests/conformance/test_models.py::test_models[executorch-{name}]" for name in _MODELS),
)


def install() -> Path:
    """Return the folder that holds the packages of requirements/executorch.txt."""
    text, done = REQUIREMENTS.read_text(encoding="utf-8"), FOLDER / "installed.txt"
    if not done.is_file() or done.read_text(encoding="utf-8") != text:
        shutil.rmtree(FOLDER, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(FOLDER)]
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
        done.write_text(text, encoding="utf-8")
    return FOLDER


def path() -> str:
    """Return the PYTHONPATH of a process with ExecuTorch."""
    return os.pathsep.join([str(install()), str(ROOT / "src"), str(ROOT)])


def main(arguments: list[str]) -> int:
    """Run the tests; ``--path`` only prints the PYTHONPATH to use."""
    if arguments == ["--path"]:
        print(path())
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *(arguments or TESTS)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path()}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
