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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from opforge import _paths
from opforge.build.cache import Made, open_cache
from opforge.build.compile import compile_units, link
from opforge.build.toolchain import Compiler, find_compiler
from opforge.codegen import Unit, kernel_units, table_unit
from opforge.codegen.units import cpp_string
from opforge.cuda.tree import Tree
from opforge.errors import ArgumentError, CorruptFileError
from opforge.schema import Operator

__all__ = ["MODES", "ORDERS", "Emulated", "Mode", "emulate", "emulate_operators"]

Mode = Literal["plain", "address", "thread"]
MODES: Final = ("plain", "address", "thread")
ORDERS: Final = ("forward", "reverse", "random")
"""How the threads of a block take turns."""

# Reports need functions and lines only; what debuggers know beside them takes a quarter of the compile time.
_SANITIZE: Final = {
    "plain": (),
    "address": ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-g1", "-fsanitize=thread"),
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
    if not paths:
        raise ArgumentError("no CUDA source", where="emulate", expected="one .cu file or more")
    tree = Tree()
    units = [Unit(f"{number}_{path.stem}.cpp", tree.source(path)) for number, path in enumerate(paths)]
    return _built(units, tree, mode, flags, name or f"cuda-{paths[0].stem}", ", ".join(map(str, paths)))


def emulate_operators(operators: Sequence[Operator], *, mode: Mode = "plain") -> Emulated:
    """Compile the CUDA kernels of operators for the CPU, as a kernel library with a table of its own.

    Args:
        operators: formula operators, gradients among them, and kernel operators that name a .cu source.
        mode: as of `emulate`.

    Raises:
        ArgumentError: no such mode, or no operator.
        SchemaError: a kernel operator names no .cu source, or one that does not exist.
        UnsupportedError: a source uses what the emulator does not model.
        ToolchainError: there is no C++ compiler.
        BuildError: the compiler refuses a source.
    """
    if not operators:
        raise ArgumentError("no operator", where="emulate_operators", expected="one operator or more")
    tree = Tree()
    units = [
        replace(unit, name=f"{unit.name}.cpp", text=tree.unit(unit.text, unit.name))
        for unit in kernel_units(operators, "cuda")
    ]
    key = operators[0].key
    hashes = "-".join(operator.schema_hash for operator in operators)
    table = replace(
        table_unit(operators, f"{key} emulated", "0", "cuda"),
        flags=(f"-DOPFORGE_CONTENT_HASH={cpp_string(hashes)}", f"-DOPFORGE_BUILD={cpp_string('CUDA emulator')}"),
    )
    name = f"cuda-{operators[0].host_namespace}_{operators[0].host_name}_v{operators[0].since_version}"
    return _built([*units, table], tree, mode, (), name, key)


def _built(units: Sequence[Unit], tree: Tree, mode: Mode, flags: Sequence[str], name: str, where: str) -> Emulated:
    if mode not in MODES:
        raise ArgumentError("no such mode of the emulator", where="emulate", expected=", ".join(MODES), got=str(mode))
    compiler = find_compiler()
    every = _flags(mode, flags)
    texts = [part for unit in units for part in (unit.text, *unit.flags)]
    key = _key([str(compiler), *every, *texts, *(part for file in tree.files.items() for part in file)])

    def make(folder: Path) -> Made:
        for place, text in tree.files.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_text(text, encoding="utf-8")
        objects, files, _ = compile_units(compiler, units, every, folder, where)
        library = folder / f"{name}.so"
        link(compiler, [*objects, _scheduler(compiler, mode)], library, ("-shared", "-fPIC", *_SANITIZE[mode]), where)
        outside = [file for file in files if folder not in file.parents]
        return Made(library, [*outside, *tree.read], key)

    return Emulated(open_cache().built(name, key, make), mode)


def _scheduler(compiler: Compiler, mode: Mode) -> Path:
    """Return what runs the threads of a block, compiled once for all libraries; each has a copy with its own state."""
    flags = (*_COMMON, *_folders(), *_SCHEDULER[mode])
    unit = Unit("scheduler.cpp", '#include "opforge/cuda/scheduler.cpp.h"\n')
    key = _key([str(compiler), unit.text, *flags])

    def make(folder: Path) -> Made:
        (scheduler,), files, _ = compile_units(compiler, [unit], flags, folder, "the emulator")
        return Made(scheduler, files, key)

    return open_cache().built("cuda-scheduler", key, make)


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


def _key(parts: Sequence[Any]) -> str:
    folder = _paths.include_dir() / "opforge"
    ours = [path.read_bytes() for path in sorted((folder / "cuda").rglob("*.*h"))]
    digest = hashlib.sha256()
    for part in [*(str(part).encode() for part in parts), *ours]:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
