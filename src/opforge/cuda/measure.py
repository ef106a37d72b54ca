"""What kernels need of a multiprocessor, from what ptxas said of them when they were compiled."""

from __future__ import annotations

import ctypes
import ctypes.util
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opforge.build.cache import compiler_words
from opforge.build.compile import compile_units
from opforge.build.cuda.architectures import chosen_architectures, gencode
from opforge.build.cuda.builder import build_cuda_library, find_host_compiler, nvcc_compiler, nvcc_flags
from opforge.build.cuda.toolkit import find_toolkit
from opforge.build.plan import plan_library
from opforge.codegen import Unit
from opforge.cuda.resources import LIMITS, Occupancy, Resources, best_block, occupancy, read_resources
from opforge.errors import ArgumentError
from opforge.schema import Operator

__all__ = [
    "KernelUse",
    "demangled",
    "resources_of_library",
    "resources_of_operators",
    "resources_of_source",
    "unknown_architectures",
    "uses",
]


@dataclass(frozen=True)
class KernelUse:
    """A kernel on one architecture.

    Attributes:
        kernel: its name in C++.
        resources: what it needs.
        threads: of a block.
        dynamic: bytes of dynamic shared memory of a block.
        found: its occupancy.
        best: threads of a block that keep most warps resident; 0 where no block fits.
    """

    kernel: str
    resources: Resources
    threads: int
    dynamic: int
    found: Occupancy
    best: int


def resources_of_library(path: Path) -> list[Resources]:
    """Return what the kernels of a CUDA library need, from what was written down when it was built.

    Raises:
        ArgumentError: nothing was.
    """
    words = compiler_words(path)
    if not words:
        manifest = path.with_suffix(".manifest.json")
        raise ArgumentError(
            "nothing says what the kernels of this library need",
            where=str(path),
            expected=f"{manifest.name} beside it, of a library built for cuda",
            got=_instead(path, manifest),
            hint="build it with `opforge build PACKAGE --device cuda`",
        )
    return read_resources(words)


def _instead(library: Path, manifest: Path) -> str:
    if not library.is_file():
        return "the library is a folder" if library.is_dir() else "there is no such library"
    if not manifest.is_file():
        return f"there is no {manifest.name}"
    return f"{manifest.name} has no compiler_words: the library is for the CPU, or the file is damaged"


def resources_of_operators(operators: Sequence[Operator], architectures: Sequence[str] | None) -> list[Resources]:
    """Return what the CUDA kernels of operators and of their gradients need, compiled now where they are not yet.

    Without nvcc, NVRTC compiles formulas.

    Raises:
        ToolchainError: there is no nvcc, and no NVRTC or an operator that is no formula.
        BuildError: the compiler refuses a source.
    """
    return resources_of_library(build_cuda_library(plan_library(operators), architectures=architectures))


def resources_of_source(path: Path, architectures: Sequence[str] | None, flags: Sequence[str] = ()) -> list[Resources]:
    """Return what the kernels of a .cu file need.

    Raises:
        ArgumentError: it cannot be read, or has no kernel.
        ToolchainError: there is no nvcc.
        BuildError: it refuses the source.
    """
    unit = Unit(path.name, _text(path))
    toolkit = find_toolkit()
    host = find_host_compiler(toolkit)
    chosen = [one for one in chosen_architectures(architectures, toolkit.architectures) if one.startswith("sm_")]
    every = (*nvcc_flags(toolkit, host), f"-I{path.resolve().parent}", *gencode(chosen), *flags)
    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
        _, _, words = compile_units(nvcc_compiler(toolkit, host), [unit], every, Path(folder), str(path))
    if "Compiling entry function" not in words:
        raise ArgumentError(
            "the file has no kernel",
            where=str(path),
            expected="a __global__ function that is not a template, or one that is instantiated",
            got="nothing that was compiled for a GPU",
            hint="name the file that has the kernels, or the package that launches them",
        )
    return read_resources(words)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got = error.strerror if isinstance(error, OSError) else f"{error.reason} at byte {error.start}"
        raise ArgumentError(
            "the file cannot be read",
            where=str(path),
            expected="CUDA C++ in UTF-8",
            got=got,
            hint="name a .cu file, a package, or a library built for cuda",
        ) from error


def unknown_architectures(resources: Sequence[Resources]) -> list[str]:
    """Return the architectures of kernels whose limits are not known, as ``sm_103``."""
    return [f"sm_{number}" for number in sorted({one.architecture for one in resources} - set(LIMITS))]


def uses(resources: Sequence[Resources], threads: int, dynamic: int = 0) -> list[KernelUse]:
    """Return the occupancy of each kernel for a block of so many threads and bytes of dynamic shared memory.

    Those for `unknown_architectures` are left out.

    Raises:
        ArgumentError: every kernel is for one of them.
    """
    rows = []
    unknown = unknown_architectures(resources)
    known = [one for one in resources if one.architecture in LIMITS]
    if unknown and not known:
        raise ArgumentError(
            "no limits are known of these architectures",
            where="occupancy",
            expected=", ".join(f"sm_{number}" for number in LIMITS),
            got=", ".join(unknown),
        )
    for one in known:
        shared = one.shared + dynamic
        try:
            best = best_block(one.architecture, one.registers, shared)
        except ArgumentError:
            best = 0
        found = occupancy(one.architecture, threads, one.registers, shared)
        rows.append(KernelUse(demangled(one.kernel), one, threads, dynamic, found, best))
    return rows


def demangled(name: str) -> str:
    """Return a C++ name as it is written, without its parameters; as it is where nothing here can read it."""
    library = ctypes.util.find_library("stdc++")
    if library is None or not name.startswith("_Z"):
        return name
    function = ctypes.CDLL(library).__cxa_demangle
    function.restype = ctypes.c_void_p
    status = ctypes.c_int(0)
    address = function(name.encode(), None, None, ctypes.byref(status))
    if not address or status.value != 0:
        return name
    text = ctypes.string_at(address).decode("utf-8", "replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return _without_parameters(text).removeprefix("void ").replace("(anonymous namespace)::", "")


def _without_parameters(text: str) -> str:
    """Cut the last pair of parentheses and what is in it."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return text[:at] if text.endswith(")") else text
    return text
