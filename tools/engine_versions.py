"""Run the tests of an adapter with each version of its engine that it is promised for; one binary serves all.

Each version is installed into a folder of its own under build/, without dependencies, and stands before the
environment's own on the path.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import steady

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"onnxruntime": "tests/unit/onnxruntime", "ai-edge-litert": "tests/unit/litert"}
"""Package -> its tests; requirements/PACKAGE.txt lists the versions."""


def install(package: str, version: str) -> Path:
    """Return the folder that holds the version."""
    folder = ROOT / "build" / package / version
    if not (folder / package.replace("-", "_")).is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, f"{package}=={version}"], check=True)
    return folder


def main(arguments: list[str]) -> int:
    """Run the tests; returns 1 when a version fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", help="PACKAGE==VERSION; all where none is named")
    named = parser.parse_args(arguments).versions or [
        f"{package}=={version}"
        for package in PACKAGES
        for version in (ROOT / "requirements" / f"{package}.txt").read_text(encoding="utf-8").split()
    ]
    failed = []
    for name in named:
        package, _, version = name.partition("==")
        path = os.pathsep.join([str(install(package, version)), str(ROOT / "src"), str(ROOT)])
        print(f"{package} {version}", flush=True)
        if steady.run(["-q", PACKAGES[package]], environment={**os.environ, "PYTHONPATH": path}).code:
            failed.append(name)
    print(f"failed with {', '.join(failed)}" if failed else "passed with every version")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
