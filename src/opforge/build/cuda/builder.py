"""Build the CUDA kernels of a planned library: machine code of chosen architectures, and PTX.

nvcc compiles all of them and links CUDA's runtime in; where it is not there, or too new for the
driver, NVRTC compiles those of formulas.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from opforge._paths import include_dir
from opforge.build.builder import Recipe, build
from opforge.build.compile import processors
from opforge.build.cuda.architectures import chosen_architectures, gencode
from opforge.build.cuda.launcher import build_with_nvrtc, nvrtc_runs_here
from opforge.build.cuda.toolkit import Toolkit, find_toolkit
from opforge.build.flags import Profile, default_profile, link_flags, shown_flags
from opforge.build.plan import LibraryPlan
from opforge.build.toolchain import Compiler, find_compiler, probe_compiler
from opforge.codegen import Unit, kernel_units, table_unit
from opforge.codegen.cpp_dispatch import has_kernels
from opforge.codegen.units import cpp_string
from opforge.errors import ArgumentError, Candidate, ToolchainError, UnsupportedError

__all__ = ["build_cuda_library", "cuda_compiler", "cuda_plan", "find_host_compiler", "nvcc_compiler", "nvcc_flags"]

_COMPRESSES = (13, 0)


def build_cuda_library(
    plan: LibraryPlan,
    *,
    architectures: Sequence[str] | None = None,
    profile: Profile | None = None,
    extra: Sequence[str] = (),
) -> Path:
    """Return the path of the plan's CUDA library in the cache, compiled now if it is not there.

    It has the operators of `plan` that have a CUDA kernel: formulas, and those that name a .cu source. It needs no
    CUDA library at run time, and loads where there is no driver; calls then return a status that says so.

    Args:
        plan: what it holds.
        architectures: "sm_80" and the like; PTX of the newest is added. None: those of this machine's devices, else
            sm_80 and sm_90.
        profile: how it rounds; None = the default. strict keeps multiply and add apart in an author's kernels too.
        extra: more flags of nvcc, which alone takes them.

    Raises:
        ToolchainError: no compiler serves, or no C++ compiler that nvcc takes; each candidate is listed.
        UnsupportedError: no operator of the plan has a CUDA kernel.
        ArgumentError: an architecture that the compiler does not know, or a wrong ``OPFORGE_CUDA_COMPILER``.
        BuildError: the compiler or linker refuses.
    """
    plan = cuda_plan(plan)
    wanted = "nvcc" if extra else cuda_compiler()
    try:
        if wanted == "nvrtc":
            return build_with_nvrtc(plan, architectures=architectures)
        toolkit = find_toolkit()
        host = find_host_compiler(toolkit)
    except ToolchainError as error:
        if wanted != "auto":
            raise
        missing = error
    else:
        if (
            wanted == "nvcc"
            or toolkit.misfit is None
            or architectures
            or plan.kernel_operators
            or not nvrtc_runs_here()
        ):
            return _build_with_nvcc(plan, toolkit, host, architectures, profile, extra)
        return build_with_nvrtc(plan, architectures=architectures)
    try:
        return build_with_nvrtc(plan, architectures=architectures)
    except ToolchainError as error:
        got = f"{missing.got}\n  and {error.what}: {error.got or error.where}"
        raise ToolchainError(
            missing.what, where=missing.where, expected=missing.expected, got=got, hint=missing.hint
        ) from error


def cuda_compiler() -> Literal["auto", "nvcc", "nvrtc"]:
    """Return what ``OPFORGE_CUDA_COMPILER`` names: auto takes nvcc where it is, else NVRTC for formulas.

    Raises:
        ArgumentError: the value is none of these.
    """
    value = os.environ.get("OPFORGE_CUDA_COMPILER") or "auto"
    for name in ("auto", "nvcc", "nvrtc"):
        if value == name:
            return name
    raise ArgumentError("unknown value", where="OPFORGE_CUDA_COMPILER", expected="auto, nvcc or nvrtc", got=value)


def _build_with_nvcc(
    plan: LibraryPlan,
    toolkit: Toolkit,
    host: Compiler,
    architectures: Sequence[str] | None,
    profile: Profile | None,
    extra: Sequence[str],
) -> Path:
    chosen = chosen_architectures(architectures, toolkit.architectures)
    profile = profile or default_profile()
    embedded = f"-DOPFORGE_CUDA_ARCHITECTURES={cpp_string(' '.join(chosen))}"
    units = [_for(unit, chosen, profile) for unit in kernel_units(plan.operators, "cuda")]
    threads = max(1, processors() // max(1, min(len(units), processors())))
    flags = (*nvcc_flags(toolkit, host), *extra, embedded)
    host_flags = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{include_dir()}", embedded)
    linked = (
        *link_flags(host),
        f"-L{toolkit.library_folder}",
        "-lcudart_static",
        "-ldl",
        "-lrt",
        "-lpthread",
    )
    text = f"{toolkit.nvcc.name} {toolkit.version}; {host}; {profile}; {shown_flags(flags)}"
    recipe = Recipe(
        compiler=nvcc_compiler(toolkit, host),
        flags=flags,
        units=units,
        host=host,
        host_flags=host_flags,
        table=table_unit(plan.operators, plan.id, plan.version, "cuda"),
        linked=linked,
        text=text,
        keeps_words=True,
        effort=(f"--threads={threads}",),
        ignored=tuple(folder.resolve() for folder in toolkit.include_folders),  # its root may be a whole environment
    )
    return build(plan, recipe)


def cuda_plan(plan: LibraryPlan) -> LibraryPlan:
    """Return the plan of the CUDA library that lies beside the library of `plan`.

    Raises:
        UnsupportedError: no operator of the plan has a CUDA kernel.
    """
    has = tuple(operator for operator in plan.operators if has_kernels(operator, "cuda"))
    if not has:
        raise UnsupportedError(
            "no operator has a CUDA kernel",
            where=plan.operators[0].key,
            expected="a formula, or a cuda.cu among the sources",
            got=", ".join(source.name for source in plan.operators[0].sources) or "no source",
        )
    name = plan.name if plan.name.endswith("_cuda") else f"{plan.name}_cuda"
    return replace(plan, operators=has, name=name)


def find_host_compiler(toolkit: Toolkit) -> Compiler:
    """Return a C++ compiler that the toolkit's nvcc takes: the one that is found, else an older g++ on the PATH.

    Raises:
        ToolchainError: there is none; each candidate is listed.
    """
    first = find_compiler()
    newest = toolkit.newest_host
    rejected: list[Candidate] = []
    found: list[Compiler | str] = [first]
    older = range(newest.get("gcc", 0), 8, -1)
    for name in [" ".join(first.command), *(f"g++-{version}" for version in older)]:
        looked = found.pop() if found else probe_compiler((name,)) if shutil.which(name) else "not on PATH"
        if isinstance(looked, str):
            rejected.append(Candidate(name, looked))
        elif int(looked.version.partition(".")[0]) > newest.get(looked.kind, 0):
            most = newest.get(looked.kind)
            words = f"{looked.kind} {most} is the newest that it takes" if most else f"it takes no {looked.kind}"
            rejected.append(Candidate(name, f"{looked.kind} {looked.version} is too new for nvcc: {words}"))
        else:
            return looked
    rows = "".join(f"\n    {c.name}: {c.reason}" for c in rejected)
    raise ToolchainError(
        "nvcc takes none of the C++ compilers here",
        where=str(toolkit),
        expected=", ".join(f"{kind} up to {version}" for kind, version in newest.items()),
        got=f"candidates:{rows}",
        hint=f"install g++-{newest.get('gcc', 13)} or name another in CXX, or use a newer toolkit",
    )


def nvcc_compiler(toolkit: Toolkit, host: Compiler) -> Compiler:
    """Return nvcc as a compiler that calls `host`."""
    words = [word for word in host.command if not word.startswith("-")]
    return Compiler(
        command=(str(toolkit.nvcc), "-ccbin", shutil.which(words[-1]) or words[-1]),
        kind="nvcc",
        version=toolkit.version,
        target=host.target,
        native=False,
        macros=frozenset(),
        identity=f"{toolkit.identity} {host.identity}",
    )


def nvcc_flags(toolkit: Toolkit, host: Compiler) -> tuple[str, ...]:
    """Return the flags of one unit but for its architectures."""
    of_host = ["-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-ffp-contract=off", "-Wall", "-Wextra"]
    if host.kind == "gcc":
        of_host.append("-Wno-psabi")
    compressed = ("--compress-mode=size",) if toolkit.release >= _COMPRESSES else ()  # a quarter, as drivers of 13 read
    return (
        "-std=c++17",
        "-O3",
        "-DNDEBUG",
        "-Xptxas=-v",
        *compressed,
        f"-Xcompiler={','.join(of_host)}",
        f"-I{include_dir()}",
    )


def _for(unit: Unit, architectures: Sequence[str], profile: Profile) -> Unit:
    """Add the flags in which formulas and authors' kernels differ.

    Rounding is explicit in formulas, so that multiply and add stay apart; in authors' kernels they do in the strict
    profile. Formulas use nothing that only newer architectures have.
    """
    is_formula = "_dispatch." not in unit.name
    apart = ("-fmad=false",) if is_formula or profile == "strict" else ()
    return replace(unit, flags=(*unit.flags, *apart, *gencode(architectures, together=is_formula)))
