"""Kernels in CUDA C++ on the CPU: compiled with the emulator's headers, plain or instrumented, and called.

``plain`` finds wrong values, threads that miss a barrier, missing barriers whose effect shows in some order of the
threads, and reads of shared memory that nobody wrote (it is filled with NaN). ``address`` adds reads and writes out
of bounds and undefined behaviour, ``thread`` data races: barriers that are missing and updates that should be atomic,
whether or not they showed. Both give the author's lines.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from opforge import _paths
from opforge.build.cache import open_cache
from opforge.build.compile import compile_units, link
from opforge.build.toolchain import find_compiler
from opforge.codegen.units import Unit
from opforge.cuda.source import includes, rewrite
from opforge.errors import ArgumentError, CorruptFileError

__all__ = ["MODES", "ORDERS", "Emulated", "Mode", "emulate"]

Mode = Literal["plain", "address", "thread"]
MODES: Final = ("plain", "address", "thread")
ORDERS: Final = ("forward", "reverse", "random")
"""How the threads of a block take turns."""

_SANITIZE: Final = {
    "plain": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-fsanitize=thread",),
}
_SCHEDULER: Final = {"plain": (), "address": ("-DOPFORGE_CUDA_ADDRESS",), "thread": ("-DOPFORGE_CUDA_THREAD",)}


@dataclass(frozen=True)
class Emulated:
    """A library of launchers whose kernels run on the CPU.

    Attributes:
        path: the shared object.
        mode: how it is instrumented. A library that is not plain can be loaded only where the sanitizer's runtime
            was loaded before everything else: see `opforge.cuda.call`.
    """

    path: Path
    mode: Mode

    def load(self, order: str = "forward", seed: int = 1) -> ctypes.CDLL:
        """Load the library into this process.

        Args:
            order: in which the threads of a block take turns: one of `ORDERS`.
            seed: of the random order.

        Raises:
            ArgumentError: no such order.
            CorruptFileError: the library cannot be loaded.
        """
        if order not in ORDERS:
            raise ArgumentError("no such order", where=str(self.path), expected=", ".join(ORDERS), got=order)
        try:
            library = ctypes.CDLL(str(self.path))
        except OSError as error:
            raise CorruptFileError("cannot load the emulated kernels", where=str(self.path), got=str(error)) from None
        library.opforge_cuda_order(ctypes.c_int(ORDERS.index(order)), ctypes.c_uint(seed))
        library.opforge_cuda_error_text.restype = ctypes.c_char_p
        return library


def emulate(
    sources: Path | Sequence[Path], *, mode: Mode = "plain", flags: Sequence[str] = (), name: str = ""
) -> Emulated:
    """Compile CUDA sources for the CPU, or take the result from the cache.

    Args:
        sources: .cu files; files that they include in quotes are translated too, where they lie beside them.
        mode: "plain", "address" (AddressSanitizer and UndefinedBehaviorSanitizer) or "thread" (ThreadSanitizer).
        flags: more flags of the compiler, such as ``-DNAME`` or ``-I`` folders.
        name: of the library in the cache; from the first file where it is not given.

    Raises:
        ArgumentError: no such mode, or no source.
        UnsupportedError: a source uses what the emulator does not model.
        ToolchainError: there is no C++ compiler.
        BuildError: the compiler refuses a source.
    """
    paths = [Path(sources)] if isinstance(sources, str | Path) else [Path(path) for path in sources]
    if mode not in MODES:
        raise ArgumentError("no such mode of the emulator", where="emulate", expected=", ".join(MODES), got=str(mode))
    if not paths:
        raise ArgumentError("no CUDA source", where="emulate", expected="one .cu file or more")
    compiler = find_compiler()
    units, headers = _translated(paths)
    every = _flags(mode, flags)
    key = _key([str(compiler), *every, *(u.text for u in units), *headers.values()])
    name = name or f"cuda-{paths[0].stem}"
    cache = open_cache()
    done = cache.lookup(name, key)
    if done is None:
        with cache.lock(name, key):
            done = cache.lookup(name, key)
            if done is None:
                done = _build(paths, units, headers, every, mode, name, key)
    return Emulated(done, mode)


def _build(
    paths: Sequence[Path],
    units: Sequence[Unit],
    headers: dict[str, str],
    flags: Sequence[str],
    mode: Mode,
    name: str,
    key: str,
) -> Path:
    import time

    cache, compiler, started = open_cache(), find_compiler(), time.time_ns()
    with cache.workspace(name, key) as work:
        for header, text in headers.items():
            (work / header).parent.mkdir(parents=True, exist_ok=True)
            (work / header).write_text(text, encoding="utf-8")
        where = ", ".join(map(str, paths))
        scheduler = Unit("scheduler.cpp", '#include "opforge/cuda/scheduler.cpp.h"\n')
        objects, files, _ = compile_units(compiler, units, flags, work, where)
        more, _, _ = compile_units(compiler, [scheduler], (*_COMMON, *_folders(), *_SCHEDULER[mode]), work, where)
        output = work / f"{name}.so"
        link(compiler, [*objects, *more], output, ("-shared", "-fPIC", *_SANITIZE[mode]), where)
        outside = [file for file in files if work not in file.parents]
        return cache.publish(name, key, output, [*outside, *paths], key, started)


_COMMON: Final = (
    "-std=c++17",
    "-O1",
    "-g",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-omit-frame-pointer",
    "-fdiagnostics-color=never",
)


def _folders() -> tuple[str, ...]:
    include = _paths.include_dir()
    return (f"-I{include}", f"-I{include / 'opforge' / 'cuda' / 'shims'}")


def _flags(mode: Mode, more: Sequence[str]) -> tuple[str, ...]:
    # The author's launchers are meant to be called; warnings are nvcc's business.
    return (*_COMMON, "-fvisibility=default", "-w", "-I.", *_SANITIZE[mode], *_folders(), *more)


def _translated(paths: Sequence[Path]) -> tuple[list[Unit], dict[str, str]]:
    """Translate the sources and what they include from beside them."""
    units, headers = [], {}
    for number, path in enumerate(paths):
        text = path.read_text(encoding="utf-8")
        body = rewrite(text, str(path.resolve()))
        units.append(Unit(f"{number}_{path.stem}.cpp", f'#include "opforge/cuda/emulator.h"\n{body}'))
        waiting = [(path.parent, one) for one in includes(text)]
        while waiting:
            folder, one = waiting.pop()
            file = folder / one
            if one in headers or not file.is_file():
                continue
            inner = file.read_text(encoding="utf-8")
            headers[one] = rewrite(inner, str(file.resolve()))
            waiting += [(folder, name) for name in includes(inner)]
    return units, headers


def _key(parts: Sequence[Any]) -> str:
    folder = _paths.include_dir() / "opforge"
    ours = [path.read_bytes() for path in sorted((folder / "cuda").rglob("*.h"))]
    digest = hashlib.sha256()
    for part in [*(str(part).encode() for part in parts), *ours]:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
