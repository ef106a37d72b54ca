"""Builds with clang's sanitizers, which `make fuzz`, `make sanitize` and `make soak` share."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "clang-14 libclang-rt-14-dev libfuzzer-14-dev"


def build(folder: Path, sanitizers: str, targets: list[str]) -> None:
    """Configure and build some targets; ends the program where clang is missing or a step fails.

    Args:
        folder: of the build.
        sanitizers: for -fsanitize=.
        targets: of CMake; those of tests/fuzz need "fuzzer-no-link".
    """
    clang = next((c for c in (shutil.which("clang++"), shutil.which("clang++-14")) if c), None)
    if clang is None:
        print(f"this needs clang with its sanitizers (Debian: {PACKAGES})")
        sys.exit(2)
    scripts = Path(sys.executable).parent
    options = {
        "CMAKE_MAKE_PROGRAM": scripts / "ninja",
        "CMAKE_CXX_COMPILER": clang,
        "CMAKE_C_COMPILER": clang.replace("clang++", "clang"),
        "CMAKE_BUILD_TYPE": "None",
        "CMAKE_CXX_FLAGS": "-O1 -g1",
        "OPFORGE_FUZZ": "ON" if "fuzzer" in sanitizers else "OFF",
        "OPFORGE_TESTS": "ON",
        "OPFORGE_PYTHON": "OFF",
        "OPFORGE_ADAPTERS": "OFF",
        "OPFORGE_ISAS": "baseline",
        "OPFORGE_ISA_OPTIMISE": "-O1",
        "OPFORGE_SANITIZE": sanitizers,
    }
    folder.mkdir(parents=True, exist_ok=True)
    configure = [scripts / "cmake", "-S", ROOT, "-B", folder, "-G", "Ninja"]
    with (folder / "configure.log").open("w") as log:
        command = [*configure, *(f"-D{name}={value}" for name, value in options.items())]
        if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
            sys.exit((folder / "configure.log").read_text())
    done = subprocess.run(
        [scripts / "cmake", "--build", folder, "-j", "2", "--target", *targets, "--", "--quiet"], check=False
    )
    if done.returncode:
        sys.exit(done.returncode)
