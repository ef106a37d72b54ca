"""CUDA kernels of operators for plugins: which library holds them, for which dtypes, and what memory they need."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opforge.build import abi
from opforge.build.library import LoadedLibrary, load_library
from opforge.engines.tensorrt._call import bind_call
from opforge.errors import MissingOperatorError, UnsupportedError
from opforge.schema import DType
from opforge.schema.dims import AnyDim

if TYPE_CHECKING:
    from opforge.build.library import LibraryOperator
    from opforge.engines.tensorrt._fields import Content
    from opforge.schema import Operator

__all__ = ["combinations", "cuda_row", "data_dependent", "has_cuda", "provide", "workspace"]

_RESERVE: Final = 1 << 20

_provided: dict[str, LibraryOperator] = {}


def provide(library: str | Path | LoadedLibrary) -> list[str]:
    """Take CUDA kernels from a library that was built ahead; return the keys of its operators.

    Raises:
        MissingOperatorError: the file is not there, or no operator of it has a CUDA kernel.
        CorruptFileError: it is no kernel library.
    """
    loaded = library if isinstance(library, LoadedLibrary) else load_library(library)
    found = {key: row for key, row in loaded.operators.items() if _kernels(row)}
    if not found:
        raise MissingOperatorError(
            "the library has no CUDA kernels", where=str(loaded.path or loaded.id), got=", ".join(loaded.operators),
            hint="opforge build PACKAGE --device cuda makes one",
        )  # fmt: skip
    _provided.update(found)
    return list(found)


def has_cuda(operator: Operator) -> bool:
    """Whether the operator can have CUDA kernels: it is a formula, or its author wrote some."""
    return operator.is_formula or any(source.suffix == ".cu" for source in operator.sources)


def cuda_row(operator: Operator) -> LibraryOperator:
    """Return the operator's row of a library that has CUDA kernels of it, building one where need be.

    Raises:
        UnsupportedError: it has none.
        ToolchainError: they are not built, and nothing here can build them.
    """
    row = _provided.get(operator.key)
    if row is not None:
        if row.schema_hash != operator.schema_hash:
            raise UnsupportedError(
                "the CUDA library holds another declaration of the operator",
                where=operator.key,
                expected=operator.schema_hash,
                got=row.schema_hash,
                hint="build it again",
            )
        return row
    if not has_cuda(operator):
        raise UnsupportedError(
            "the operator has no CUDA kernel",
            where=operator.key,
            expected="a formula, or a .cu file among its sources",
            got=", ".join(source.name for source in operator.sources) or "no sources",
        )
    from opforge.build.device import device_library

    row = _provided[operator.key] = device_library(operator).operator(operator.key)
    return row


def _kernels(row: LibraryOperator) -> list[tuple[DType, ...]]:
    """The dtypes of the CUDA kernels, one per type variable."""
    rows = [kernel for kernel in row.kernels if kernel.device_type == abi.DEVICE_CUDA]
    return [tuple(DType.from_dlpack(code, bits) for code, bits in kernel.dtypes) for kernel in rows]


def combinations(operator: Operator, row: LibraryOperator, content: Content, inputs: int) -> list[tuple[DType, ...]]:
    """Return the dtypes of all inputs and outputs together that a kernel serves, one row per kernel.

    Raises:
        ArgumentError: the operator does not take that number of inputs.
    """
    counts = bind_call(operator, content, [None] * inputs, [None] * inputs).input_counts
    made: list[tuple[DType, ...]] = []
    for choice in _kernels(row):
        variables = dict(zip(operator.types, choice, strict=True))
        groups = zip(operator.signature.inputs, counts, strict=True)
        flat = list(itertools.chain(*([variables.get(p.type) or p.dtype] * count for p, count in groups)))
        outputs = bind_call(operator, content, [None] * inputs, flat).output_dtypes
        together = tuple(dtype for dtype in (*flat, *outputs) if dtype is not None)
        if len(together) == inputs + len(outputs):
            made.append(together)
    return list(dict.fromkeys(made))


def workspace(operator: Operator, shapes: Sequence[tuple[Sequence[int], DType]], asked: Mapping[str, int]) -> int:
    """Return the bytes of workspace of a call on tensors (inputs and outputs) of these sizes at most.

    A formula's forward kernel needs none. What others ask for while they run is not declared, so they get as much as
    their tensors have, and a little; ``asked`` gives another number for an operator's key.
    """
    if operator.key in asked:
        return asked[operator.key]
    if operator.is_formula and not operator.is_gradient:
        return 0
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes) + _RESERVE


def data_dependent(operator: Operator) -> bool:
    """Whether an output's size depends on data, which a plugin of this kind cannot say."""
    return any(isinstance(dim, AnyDim) for parameter in operator.signature.outputs for dim in parameter.dims)
