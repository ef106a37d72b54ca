"""An NVRTC that compiles to a few bytes at once, for tests of what is built of them; as a program, builds a library."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import opforge as of
from opforge.build.cuda import build_cuda_library, launcher, nvrtc
from opforge.build.cuda.nvrtc import Compiled, Nvrtc
from opforge.build.plan import plan_library
from opforge.errors import ToolchainError

__all__ = ["StubNvrtc", "product", "use_stub_nvrtc"]


@of.formula("test.stub::Product")
def product(x, w):
    """Broadcast, so that gradients are sums."""
    return x * w


class StubNvrtc(Nvrtc):
    """Notes what it compiles."""

    def __init__(self, seconds: float = 0.0) -> None:
        """Load nothing."""
        self.path, self.version, self.include_folders = Path("stub"), "13.0", ()
        self.made: list[tuple[str, str]] = []
        self._seconds = seconds

    def architectures(self) -> tuple[str, ...]:
        """Return a few."""
        return ("sm_80", "sm_90", "sm_100")

    def compile(self, source: str, architecture: str, kernels: Sequence[str], where: str) -> Compiled:
        """Return bytes that name the architecture."""
        time.sleep(self._seconds)
        self.made.append((where, architecture))
        ptx = architecture.replace("sm_", "compute_")
        names = {kernel: f"k{number}" for number, kernel in enumerate(kernels)}
        return Compiled(f"<{architecture}>".encode(), names, f"{where} for {architecture}\n", f"<{ptx}>\0".encode())


def use_stub_nvrtc(
    nvrtc_: Nvrtc | None = None, replace: Callable[[object, str, object], None] = setattr, *, nvcc: bool = False
) -> Nvrtc:
    """Have it found in NVRTC's place, and no nvcc."""
    found = nvrtc_ or StubNvrtc()
    for module in (launcher, nvrtc):
        replace(module, "find_nvrtc", lambda: found)
    if not nvcc:
        replace(sys.modules["opforge.build.cuda.builder"], "find_toolkit", no_toolkit)
    return found


def no_toolkit() -> None:
    """Say that there is no nvcc."""
    raise ToolchainError("no CUDA toolkit serves", got="candidates: no bin/nvcc anywhere", hint="install nvcc")


if __name__ == "__main__":
    use_stub_nvrtc(StubNvrtc(float(sys.argv[1])))
    print("begun", flush=True)
    print(build_cuda_library(plan_library([product]), architectures=["sm_80"]))
