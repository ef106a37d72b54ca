"""NVRTC's place taken by the emulator: images that the fake driver launches on the CPU.

An image names a library of emulated kernels. With it, a library that was built without nvcc is run whole: the launcher,
what it decides for a call, and the kernels' numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from opforge._files import whole_file
from opforge.build.cache import cache_dir
from opforge.build.cuda import launcher, nvrtc
from opforge.build.cuda.nvrtc import Compiled, Nvrtc
from opforge.cuda import emulate

__all__ = ["EmulatedNvrtc", "use_emulated_nvrtc"]

_VALUES: Final = "*static_cast<opforge::cuda::Space*>(p[0]), *static_cast<uint32_t*>(p[1])"
_SUMS: Final = (
    "*static_cast<opforge::cuda::Space*>(p[0]), *static_cast<int*>(p[1]), *static_cast<opforge::cuda::Parts*>(p[2]), "
)
_PARAMETERS: Final = {
    "dense": _VALUES,
    "strided": _VALUES,
    "partial": f"{_SUMS}*static_cast<void**>(p[3])",
    "combine": f"{_SUMS}*static_cast<const V**>(p[3])",
}


class EmulatedNvrtc(Nvrtc):
    """Compiles kernels for the emulator."""

    def __init__(self) -> None:
        """Load nothing."""
        self.path, self.version, self.include_folders = Path("emulated"), "13.0", ()

    def architectures(self) -> tuple[str, ...]:
        """Return a few."""
        return ("sm_80", "sm_86", "sm_90", "sm_120")

    def compile(self, source: str, architecture: str, kernels: Sequence[str], where: str) -> Compiled:
        """Compile a source with the emulator; machine code and PTX differ in what they say they are."""
        lines = [source]
        for number, kernel in enumerate(kernels):
            of = re.match(r"opforge::cuda::(\w+)<", kernel)
            assert of is not None
            value = re.search(r"(\w+::\w+::Body<[^<>]*>::V)", kernel)
            lines += [
                f'extern "C" void kernel_{number}(unsigned* grid, unsigned* block, void* stream, void** p) {{',
                f"  using V = {value[1] if value else 'void'};" if "combine" in kernel else "",
                f"  const auto kernel = &{kernel};",
                "  kernel<<<dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), 0,",
                f"           static_cast<cudaStream_t>(stream)>>>({_PARAMETERS[of[1]]});",
                "}",
            ]
        text = "\n".join(lines)
        path = cache_dir() / "emulated" / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.cu"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            with whole_file(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        built = emulate(path, flags=("-O0",), name="cuda-image").path  # which takes half as long to make
        names = {kernel: f"kernel_{number}" for number, kernel in enumerate(kernels)}
        head, ptx = f"opforge emulated image {built}", architecture.replace("sm_", "compute_")
        return Compiled(f"{head}\0{architecture}\0".encode(), names, "", f"{head}\0{ptx}\0".encode())


def use_emulated_nvrtc(replace: Callable[[object, str, object], None] = setattr) -> None:
    """Have libraries that NVRTC would compile made for the emulator from now on."""
    found = EmulatedNvrtc()
    for module in (launcher, nvrtc):
        replace(module, "find_nvrtc", lambda: found)
