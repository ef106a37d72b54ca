"""Libraries of formulas' kernels without nvcc and without a C++ compiler: NVRTC's images behind a prebuilt launcher.

The file that comes out is a copy of ``libopforge_launcher.so``, whose code reads what was written behind it and
launches the kernels through NVIDIA's driver. To hosts it is a kernel library like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from opforge._paths import library_dir
from opforge.build import abi
from opforge.build.builder import content_hash
from opforge.build.cache import Made, file_hash, open_cache
from opforge.build.compile import processors
from opforge.build.cuda.architectures import chosen_architectures
from opforge.build.cuda.nvrtc import Compiled, compile_formula, device_headers, find_nvrtc
from opforge.build.cuda.payload import BuiltKernel, payload
from opforge.build.flags import shown_flags
from opforge.build.plan import LibraryPlan
from opforge.codegen.cuda import formula_kernels
from opforge.codegen.units import Unit, dtype_choices
from opforge.errors import InternalError, ToolchainError
from opforge.schema.dtypes import DType
from opforge.schema.operator import Operator

__all__ = ["build_with_nvrtc", "find_launcher", "nvrtc_runs_here"]


def find_launcher() -> Path:
    """Return the launcher's file.

    Raises:
        ToolchainError: this installation lacks it.
    """
    path = library_dir() / "libopforge_launcher.so"
    if not path.is_file():
        raise ToolchainError(
            "the launcher of kernels is missing",
            where=str(path),
            hint="install opforge again, or in a source tree build it (make native)",
        )
    return path


def nvrtc_runs_here() -> bool:
    """Return whether there is an NVRTC whose code this machine runs, and what launches it."""
    try:
        find_launcher()
        return find_nvrtc().misfit is None
    except ToolchainError:
        return False


def build_with_nvrtc(plan: LibraryPlan, *, architectures: Sequence[str] | None = None) -> Path:
    """Return the path of the plan's CUDA library in the cache, compiled now by NVRTC if it is not there.

    Args:
        plan: what it holds: formula operators.
        architectures: as of `chosen_architectures`.

    Raises:
        ToolchainError: there is no NVRTC, or none for the GPU here, the launcher is missing, or an operator is no
            formula.
        ArgumentError: an architecture that NVRTC does not know.
        BuildError: NVRTC refuses a kernel.
    """
    authored = next(iter(plan.kernel_operators), None)
    if authored is not None:
        raise ToolchainError(
            "NVRTC compiles the kernels of formulas only",
            where=authored.key,
            expected="nvcc for its .cu sources",
            got=f"{authored.key} with {', '.join(source.name for source in authored.sources)}",
            hint="pip install 'opforge[cuda]' (a g++ is needed too), or set CUDA_HOME",
        )
    nvrtc, launcher = find_nvrtc(), find_launcher()
    chosen = chosen_architectures(architectures, nvrtc.architectures())
    units = [
        Unit(f"{operator.host_name}.cu", formula_kernels(operator, dtypes).source)
        for operator in plan.operators
        for dtypes in dtype_choices(operator)
    ]
    flags = nvrtc.flags("")
    parts = [f"abi {abi.ABI}", nvrtc.identity, file_hash(launcher), *chosen, *flags, *nvrtc.headers.values()]
    for operator in plan.operators:
        parts += [operator.key, operator.schema_hash, operator.gradient or "", str(operator.flags)]
    parts += [plan.id, plan.version, *(unit.text for unit in units)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def make(folder: Path) -> Made:
        headers = device_headers()
        content = content_hash(plan, units, headers)
        rows, words = _compiled(plan.operators, chosen)
        text = f"NVRTC {nvrtc.version}; {shown_flags(tuple(flags[1:]))}"
        library = folder / f"{plan.name}.so"
        library.write_bytes(launcher.read_bytes() + payload((plan.id, plan.version, content, text), rows, chosen))
        return Made(library, [*headers, launcher], content, headers, words)

    return open_cache().built(plan.name, key, make)


def _compiled(
    operators: Sequence[Operator], architectures: Sequence[str]
) -> tuple[list[tuple[Operator, list[BuiltKernel]]], str]:
    """Compile all kernels, on all processors, and return them with what the compiler said."""
    choices = [(operator, dtypes) for operator in operators for dtypes in dtype_choices(operator)]
    # PTX comes with the machine code of its architecture.
    machine = {one: one.replace("compute_", "sm_") for one in architectures}
    sources = {one: code if code in machine else one for one, code in machine.items()}
    jobs = [(operator, dtypes, one) for operator, dtypes in choices for one in dict.fromkeys(sources.values())]
    with ThreadPoolExecutor(max_workers=min(len(jobs), processors())) as pool:
        done = list(pool.map(lambda job: compile_formula(job[0], job[1][0].name if job[1] else "", job[2]), jobs))
    found = {(id(operator), dtypes, one): made for (operator, dtypes, one), made in zip(jobs, done, strict=True)}
    rows: list[tuple[Operator, list[BuiltKernel]]] = []
    for operator in operators:
        built = []
        for dtypes in dtype_choices(operator):
            images = {one: found[id(operator), dtypes, sources[one]] for one in architectures}
            built.append(_built(operator, dtypes, images))
        rows.append((operator, built))
    return rows, "".join(made.words for made in done)


def _built(operator: Operator, dtypes: tuple[DType, ...], images: dict[str, Compiled]) -> BuiltKernel:
    kernels = formula_kernels(operator, dtypes)
    named = {tuple(made.names[name] for name in kernels.names) for made in images.values()}
    if len(named) != 1:
        raise InternalError("NVRTC names kernels by architecture", where=operator.key, got=named)
    every = {one: made.image if one.startswith("sm_") else made.ptx for one, made in images.items()}
    return BuiltKernel(dtypes, kernels, named.pop(), every)
