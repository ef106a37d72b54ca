"""Libraries of kernels for devices: what a host calls when the first tensor on one comes.

Beside the library for the CPU a package has one per device, of the same operators. It is taken where it was built
ahead (``opforge build --device cuda``), and else built now, as ``OPFORGE_JIT`` allows. Nothing ever falls back to the
CPU: where there is no library, the error names what is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from opforge.build import abi
from opforge.build.ahead import find_built, find_row
from opforge.build.cuda.builder import build_cuda_library, cuda_plan
from opforge.build.jit import jit_mode, notice
from opforge.build.library import LibraryOperator, LoadedLibrary, load_library
from opforge.build.plan import LibraryPlan, plan_library
from opforge.errors import InternalError, ToolchainError
from opforge.schema import registry
from opforge.schema.operator import Operator

__all__ = ["DEVICE_TYPES", "Device", "declaring", "device_library", "device_library_of_row"]

Device = Literal["cuda"]

DEVICE_TYPES: Final[Mapping[int, Device]] = MappingProxyType({abi.DEVICE_CUDA: "cuda"})
"""``OPFORGE_DEVICE_*`` -> the name of the device."""

_lock = threading.RLock()
_libraries: dict[tuple[str, str, int], LoadedLibrary] = {}
_kept: list[Operator] = []  # so that no other object takes an operator's identity


def device_library(operator: Operator, device: Device = "cuda") -> LoadedLibrary:
    """Return the loaded library that holds an operator's kernels for a device, its gradients' among them.

    One that was built ahead is taken first; otherwise it is built. It is kept for the process.

    Raises:
        ToolchainError: there is none, and none can be built here; the message names what is missing.
        BuildError: the compiler refuses a source.
    """
    memo = (device, jit_mode(), id(operator))
    found = _libraries.get(memo)
    if found is not None:
        return found
    with _lock:
        if memo not in _libraries:
            library = _obtain(plan_library([operator]), operator, device)
            _kept.append(operator)
            _libraries[memo] = library
        return _libraries[memo]


def declaring(key: str, schema_hash: str) -> Operator | None:
    """Return the declared operator that is this one, or whose generated gradient operators it is among."""
    domain, _, rest = key.rpartition("::")
    for operator in registry.operators(all_versions=True).values():
        if operator.domain == domain and rest.startswith(operator.name):
            known = {one.key: one.schema_hash for one in plan_library([operator]).operators}
            if known.get(key) == schema_hash:
                return operator
    return None


def device_library_of_row(row: LibraryOperator, beside: Path | None, device: Device = "cuda") -> LoadedLibrary:
    """Return the built library with the device's kernels of an operator that is known by its table only.

    Args:
        row: the operator, as the library for the CPU has it.
        beside: the folder of that library, in which the one for the device may lie too.
        device: where the kernels run.

    Raises:
        ToolchainError: there is none.
    """
    found = find_row(row.key, row.schema_hash, beside, device)
    if found is None:
        raise _missing(row.key, device, "nothing declares the operator here, so that it cannot be built")
    return found


def _obtain(plan: LibraryPlan, operator: Operator, device: Device) -> LoadedLibrary:
    mode = jit_mode()
    if not operator.is_formula and not any(source.suffix == ".cu" for source in operator.sources):
        raise ToolchainError(
            f"the operator has no kernel for {device}",
            where=operator.key,
            expected=f"a source {device}.cu among its sources",
            got=", ".join(source.name for source in operator.sources) or "no source",
            hint="write one, or move the tensors to the CPU",
        )
    plan = cuda_plan(plan)
    built = None if mode == "require" else find_built(plan, device)
    if built is not None:
        return built
    if mode == "off":
        raise _missing(operator.key, device, "OPFORGE_JIT=off forbids compiling")
    try:
        with notice(plan.name):
            built_now = build_cuda_library(plan)
        library = load_library(built_now)
    except ToolchainError as error:
        raise _missing(operator.key, device, f"{error.what}: {error.got}", error.hint) from error
    row = library.operators.get(operator.key)
    if row is None or row.schema_hash != operator.schema_hash:
        raise InternalError(
            "the library for the device holds another declaration of the operator",
            where=f"{operator.key} in {library.path}", expected=operator.schema_hash, got=row and row.schema_hash,
        )  # fmt: skip
    return library


def _missing(key: str, device: Device, why: str, hint: str | None = None) -> ToolchainError:
    elsewhere = (
        f"opforge build PACKAGE --device {device} --out FOLDER on a machine that can, with FOLDER in "
        "OPFORGE_LIBRARY_PATH; or move the tensors to the CPU"
    )
    return ToolchainError(
        f"the operator's kernels for {device} are not built",
        where=key,
        expected=f"a library built ahead, or what builds one for {device}",
        got=why,
        hint=f"{hint}; or {elsewhere}" if hint else elsewhere,
    )
