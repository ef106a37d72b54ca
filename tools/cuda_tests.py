"""Install CUDA's compilers into a folder of its own and run what needs them, after the emulator's checks.

The folder, build/cuda, stands before the environment's own packages on the path; nothing else is changed. No GPU is
needed: kernels are compiled, for devices too, and run in the emulator only.
"""

from __future__ import annotations

import os
import subprocess
import sys

from apart import ROOT, install, path

TESTS = ("tests/unit/nvcc", "tests/unit/cuda/test_occupancy.py")
_EMULATED = ("check", "opforge.ops", "--level", "quick", "--device", "cuda-emulated")
_SANITIZED = ("--sanitize", "address", "--sanitize", "thread")


def main(arguments: list[str]) -> int:
    """Run the emulator's checks and the tests, or the given tests only; a test that is left out is a failure."""
    environment = {**os.environ, "PYTHONPATH": path(install("cuda"))}
    environment.pop("CUDA_HOME", None)  # what is tested is what was installed
    environment.pop("CUDA_PATH", None)
    if not arguments:
        emulated = [sys.executable, "-m", "opforge", *_EMULATED, *_SANITIZED]
        code = subprocess.run(emulated, cwd=ROOT, env=environment, check=False).returncode
        if code:
            return code
    command = [sys.executable, "tools/run_tests.py", *(arguments or TESTS)]
    environment["OPFORGE_FORBID_OMISSIONS"] = "1"
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
