"""Run the tests of the ONNX Runtime adapter with each version that it is promised for; one binary serves all.

Each version is installed into a folder of its own under build/onnxruntime, without dependencies, and stands before the
environment's own on the path.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ROOT / "requirements" / "onnxruntime.txt"


def install(version: str) -> Path:
    """Return the folder that holds the version."""
    folder = ROOT / "build" / "onnxruntime" / version
    if not (folder / "onnxruntime").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, f"onnxruntime=={version}"], check=True)
    return folder


def main(arguments: list[str]) -> int:
    """Run the tests; returns 1 when a version fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS.read_text(encoding="utf-8").split())
    failed = []
    for version in parser.parse_args(arguments).versions:
        path = os.pathsep.join([str(install(version)), str(ROOT / "src"), str(ROOT)])
        print(f"ONNX Runtime {version}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/onnxruntime"]
        if subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False).returncode:
            failed.append(version)
    print(f"failed with {', '.join(failed)}" if failed else "passed with every version")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
