"""Formula operators without a compiler: the bytecode interpreter of libopforge, seen as a kernel library."""

from __future__ import annotations

import ctypes
import hashlib
import warnings
from functools import cache

from opforge._environment import check_runtime_variables
from opforge._paths import runtime_library
from opforge.build import abi
from opforge.build.flags import default_profile
from opforge.build.library import LoadedLibrary, read_table
from opforge.build.plan import LibraryPlan
from opforge.codegen.cpp import program_of
from opforge.errors import InternalError, ToolchainError

__all__ = ["interpreter_library", "runtime"]


class _Description(ctypes.Structure):
    """opforge_formula_description of ``include/opforge/interpreter.h``."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("abi", ctypes.c_uint32),
        ("domain", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("since_version", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("signature", ctypes.c_char_p),
        ("types", ctypes.c_char_p),
        ("autocast", ctypes.c_char_p),
        ("gradient", ctypes.c_char_p),
        ("schema_hash", ctypes.c_char_p),
        ("blob", ctypes.c_char_p),
        ("blob_size", ctypes.c_size_t),
        ("dtypes", ctypes.POINTER(abi.DType)),
        ("n_dtypes", ctypes.c_int32),
        ("reserved0", ctypes.c_int32),
        ("reserved", ctypes.c_void_p * 4),
    )


@cache
def runtime() -> ctypes.CDLL:
    """Load libopforge.

    Raises:
        ArgumentError: ``OPFORGE_ISA`` or ``OPFORGE_NUM_THREADS`` has a wrong value.
        ToolchainError: this installation lacks it or it cannot be loaded.
    """
    check_runtime_variables()
    path = runtime_library()
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise ToolchainError(
            "the runtime library cannot be loaded",
            where=str(path),
            got=str(error),
            hint="install opforge again (pip install --force-reinstall opforge), or in a source tree run: make build",
        ) from None


def interpreter_library(plan: LibraryPlan) -> LoadedLibrary:
    """Return a library whose kernels interpret the formulas of `plan`, bit for bit as compiled ones."""
    _check_profile()
    function = runtime().opforge_interpreter_library
    function.restype = ctypes.c_void_p
    function.argtypes = [
        ctypes.POINTER(_Description), ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p,
        ctypes.c_void_p, ctypes.c_size_t,
    ]  # fmt: skip
    descriptions = (_Description * len(plan.operators))()
    digest = hashlib.sha256()
    kept: list[object] = []  # the library copies what it needs; until then these must live
    for row, operator in zip(descriptions, plan.operators, strict=True):
        blob = program_of(operator).encode()
        digest.update(blob)
        dtypes = next(iter(operator.types.values()))
        array = (abi.DType * len(dtypes))(*[abi.DType(d.code, d.bits, 1) for d in dtypes])
        kept += [blob, array]
        row.size, row.abi = ctypes.sizeof(_Description), abi.ABI
        row.domain, row.name = operator.domain.encode(), operator.name.encode()
        row.since_version, row.flags = operator.since_version, operator.flags
        row.signature, row.types = str(operator.signature).encode(), operator.types_text.encode()
        row.autocast, row.gradient = operator.autocast.encode(), (operator.gradient or "").encode()
        row.schema_hash = operator.schema_hash.encode()
        row.blob, row.blob_size = blob, len(blob)
        row.dtypes, row.n_dtypes = array, len(dtypes)
    reason = ctypes.create_string_buffer(1024)
    address = function(
        descriptions, len(plan.operators), plan.id.encode(), plan.version.encode(), digest.hexdigest().encode(),
        ctypes.addressof(reason), ctypes.sizeof(reason),
    )  # fmt: skip
    if not address:
        text = reason.value.decode("utf-8", "replace")
        raise InternalError("the interpreter refuses a formula", where=plan.operators[0].key, got=text)
    return read_table(address)


def _check_profile() -> None:
    """Warn where the interpreter rounds otherwise than the profile that was asked for."""
    function = runtime().opforge_numeric_profile
    function.restype = ctypes.c_char_p
    actual = function().decode()
    if default_profile() == "strict" and actual != "strict":
        text = f"OPFORGE_PROFILE=strict, but the interpreter runs in the {actual} profile; set OPFORGE_ISA=baseline too"
        warnings.warn(text, RuntimeWarning, stacklevel=6)
