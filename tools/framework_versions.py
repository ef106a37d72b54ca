"""Run the hosts' tests with older frameworks: `make frameworks`.

Each row gets an environment of its own in build/frameworks and takes the adapters as they are built: one binary serves
every version.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BASE = tuple("pytest hypothesis scipy numpy ml-dtypes mpmath onnx>=1.19 onnx-ir>=0.1.12 click rich".split())


@dataclass(frozen=True)
class Row:
    """An older framework and what to run with it."""

    host: str
    packages: tuple[str, ...]

    @property
    def tests(self) -> list[str]:
        """The host's own tests, and the operators of the library in it."""
        return [f"tests/unit/{self.host}", "tests/conformance/test_parity.py", "-k", f"{self.host} or not parity"]


ROWS = {
    "tensorflow-2.18": Row("tensorflow", ("tensorflow-cpu==2.18.*", "keras==3.5.*", "tf2onnx>=1.17")),
    "tensorflow-2.20": Row("tensorflow", ("tensorflow-cpu==2.20.*", "tf2onnx>=1.17")),
    "jax-0.6": Row("jax", ("jax==0.6.*", "flatbuffers")),
}


def python_of(name: str) -> Path:
    """Make the environment of a row once; return its interpreter."""
    folder = ROOT / "build" / "frameworks" / name
    python, done = folder / "bin" / "python", folder / "done"
    if not done.is_file():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *_BASE, *ROWS[name].packages], check=True)
        done.touch()
    return python


def main() -> int:
    """Run the rows; 1 = one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all without")
    chosen = parser.parse_args().rows or list(ROWS)
    unknown = sorted(set(chosen) - set(ROWS))
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    failed = []
    for name in chosen:
        print(f"{name}:", flush=True)
        command = [python_of(name), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *ROWS[name].tests]
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
