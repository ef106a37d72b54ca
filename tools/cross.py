"""Build libopforge for other processors and run it there, emulated: `make cross`.

For each target: its C++ tests, then the corpus (tools/corpus.py): every model must give the bits that the strict
profile gives on this machine, and on aarch64 those of the fast profile too. A cross compiler and qemu-user are needed;
.ci/run names the packages.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from corpus import FAST, ROOT, listed

BUILD = ROOT / "build" / "cross"
RTOL64 = "1e-13"
"""A few kernels of f64 call libm (powers of LpPool and LRN, Fourier transforms, random numbers), whose last bits differ
between systems. The functions of formulas do not; vector_math_f64_test holds their bits."""


@dataclass(frozen=True)
class Target:
    """A processor.

    Attributes:
        name: of its file in cmake/toolchains and its folder in build/cross.
        triple: what its compiler's name begins with.
        emulator: qemu-user's program.
        fast: its instruction set of the fast profile, or "" where it has none.
    """

    name: str
    triple: str
    emulator: str
    fast: str = ""

    def missing(self) -> list[str]:
        """Return the programs that are not installed."""
        return [p for p in (f"{self.triple}-g++", self.emulator) if shutil.which(p) is None]

    def command(self, program: Path) -> list[str]:
        """Return what runs a program of this target."""
        return [self.emulator, "-L", f"/usr/{self.triple}", str(program)]


TARGETS = (
    Target("aarch64", "aarch64-linux-gnu", "qemu-aarch64", fast="neon"),
    Target("armhf", "arm-linux-gnueabihf", "qemu-arm"),
    Target("riscv64", "riscv64-linux-gnu", "qemu-riscv64"),
)
ARGUMENTS: dict[str, list[str]] = {
    "pool_test": ["no-fork"],
    "shared_test": [str(ROOT / "tests" / "data" / "bins"), "20"],
    "signature_vectors_test": [str(ROOT / "tests" / "data" / "signature_vectors.json")],
    "vector_math_test": ["1048573"],
}
"""Arguments of C++ tests: qemu-user cannot fork a process with threads, and counts are small ones."""


def build(target: Target, jobs: int) -> None:
    """Configure and build one target."""
    scripts = Path(sys.executable).parent
    folder = BUILD / target.name
    folder.mkdir(parents=True, exist_ok=True)
    configure = [
        str(scripts / "cmake"),
        *("-S", str(ROOT), "-B", str(folder), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={scripts / 'ninja'}"),
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / 'toolchains' / (target.name + '.cmake')}",
        *("-DOPFORGE_PYTHON=OFF", "-DOPFORGE_ADAPTERS=OFF", "-DOPFORGE_TESTS=ON", "-DOPFORGE_WERROR=ON"),
        # Strict arithmetic does not depend on the optimiser; -O1 is built in half the time.
        *("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -DNDEBUG -Wno-psabi", "-DOPFORGE_ISA_OPTIMISE=-O1"),
    ]
    with (folder / "configure.log").open("w") as log:
        if subprocess.run(configure, stdout=log, stderr=log, check=False).returncode:
            sys.exit((folder / "configure.log").read_text())
    subprocess.run([str(scripts / "cmake"), "--build", str(folder), "-j", str(jobs), "--", "--quiet"], check=True)


def run(target: Target, cases: Path) -> bool:
    """Run the tests and the corpus on one target; print what fails."""
    good = True
    folder = BUILD / target.name
    programs = {p.name: p for p in (*folder.glob("runtime/*_test"), *folder.glob("tests/cpp/*_test"))}
    for name, program in sorted(programs.items()):
        done = subprocess.run(
            [*target.command(program), *ARGUMENTS.get(name, [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            print(f"{target.name}: {name} FAILED\n{done.stdout.decode(errors='replace')[-3000:]}")
            good = False
    runner = [*target.command(folder / "tests" / "cpp" / "run_list"), str(cases), "--rtol64", RTOL64]
    for isa, options in (("baseline", ["--threads", "2"]), (target.fast, FAST)):
        if isa:
            done = subprocess.run([*runner, *options], env={**os.environ, "OPFORGE_ISA": isa}, check=False)
            good = good and done.returncode == 0
    return good


def main() -> int:
    """Build and run the targets; 0 when all is equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="; ".join(t.name for t in TARGETS) + " (all when none is given)")
    parser.add_argument("--full", action="store_true", help="every test of onnx's suite that compiles")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        print("make cross: bits are compared with those of x86-64, which this machine is not")
        return 2
    chosen = [t for t in TARGETS if not options.targets or t.name in options.targets]
    missing = sorted({program for target in chosen for program in target.missing()})
    if missing:
        print(f"make cross: not installed: {', '.join(missing)}\n  hint: .ci/run lists Debian's packages")
        return 2
    failed = []
    for target in chosen:
        start = time.monotonic()
        build(target, options.jobs)
        built = time.monotonic()
        if not run(target, listed(options.full)):
            failed.append(target.name)
        print(f"{target.name}: built in {built - start:.0f} s, run in {time.monotonic() - built:.0f} s", flush=True)
    if failed:
        print(f"make cross: FAILED: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
