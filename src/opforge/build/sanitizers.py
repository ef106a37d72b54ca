"""What a process needs that loads an instrumented library, and how reports name a line.

Python is not instrumented, so the sanitizer's runtime has to be loaded before everything else.
"""

from __future__ import annotations

import functools
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from opforge.build.toolchain import Compiler
from opforge.errors import ToolchainError

__all__ = ["FRAME", "fixed_addresses", "preload"]

_RUNTIMES: Final = {
    "address": {"gcc": "libasan.so", "clang": "libclang_rt.asan-{machine}.so"},
    "undefined": {"gcc": "libubsan.so", "clang": "libclang_rt.ubsan_standalone-{machine}.so"},
    "thread": {"gcc": "libtsan.so", "clang": "libclang_rt.tsan-{machine}.so"},
}

FRAME: Final = re.compile(
    r"^\s*#\d+ (?:0x[0-9a-f]+ in )?(?P<function>.*?) (?P<file>/[^\s:]+):(?P<line>\d+)", re.MULTILINE
)
"""A frame of a report's stack that has a line."""


def preload(compiler: Compiler, *sanitizers: str) -> str:
    """Return the value of ``LD_PRELOAD`` for libraries that the compiler instrumented; empty for none.

    Raises:
        ToolchainError: the compiler has no runtime of a sanitizer.
    """
    if not sanitizers:
        return ""
    # The runtime wraps what throws exceptions, so it has to find the C++ library at once.
    return ":".join([*(_runtime(compiler, name) for name in sanitizers), _file(compiler, "libstdc++.so.6") or ""])


@functools.cache
def fixed_addresses() -> tuple[str, ...]:
    """Return words to put before a command, so that its memory lies at fixed addresses; none where that is refused.

    The sanitizers' maps of memory have no room for some of the addresses that Linux may choose.
    """
    words = (shutil.which("setarch") or "", platform.machine(), "-R")
    if not words[0]:
        return ()
    tried = subprocess.run([*words, "true"], capture_output=True, check=False)  # containers may forbid it
    return words if tried.returncode == 0 else ()


def _runtime(compiler: Compiler, name: str) -> str:
    wanted = _RUNTIMES[name][compiler.kind].format(machine=platform.machine())
    found = _file(compiler, wanted)
    if found is None:
        package = "libclang-rt-dev" if compiler.kind == "clang" else f"lib{wanted.removeprefix('lib').split('.')[0]}"
        raise ToolchainError(
            f"the compiler has no runtime of the {name} sanitizer",
            where=str(compiler),
            expected=wanted,
            hint=f"install it (Debian: {package}), or set CXX to another compiler",
        )
    return found


def _file(compiler: Compiler, name: str) -> str | None:
    """Ask the compiler where a library of its own lies."""
    command = [*compiler.command, f"-print-file-name={name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path = Path(done.stdout.strip())
    return str(path.resolve()) if path.is_absolute() and path.exists() else None
