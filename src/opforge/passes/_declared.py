"""What a model says of its outputs, against what its nodes give."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from opforge.errors import ArgumentError
from opforge.passes._dims import Dim, parse
from opforge.passes.infer_shapes import dims_of

__all__ = ["Declared", "declared_outputs", "require_declared"]


@dataclass(frozen=True)
class Declared:
    """Type and dimensions that a model gives for an output, None where it gives none."""

    name: str
    type: ir.TypeProtocol | None
    dims: list[Dim] | None


def declared_outputs(model: ir.Model) -> list[Declared]:
    """Remember what is said, before inference puts what it found in its place."""
    return [
        Declared(
            v.name or "?",
            None if v.dtype is ir.DataType.UNDEFINED else v.type,
            None if v.shape is None else [parse(d) for d in v.shape],
        )
        for v in model.graph.outputs
    ]


def require_declared(model: ir.Model, said: list[Declared]) -> None:
    """Compare with what was inferred: types, ranks, and dimensions that are numbers on both sides.

    Raises:
        ArgumentError: an output has another type or another shape than the model says.
    """
    for value, told in zip(model.graph.outputs, said, strict=True):
        where = f"output {told.name!r}"
        if told.type is not None and value.type is not None and told.type != value.type:
            raise _contradicts("dtype", where, _type(value.type), _type(told.type))
        dims = dims_of(value)
        if dims is None or told.dims is None:
            continue
        numbers = [(a.constant, b.constant) for a, b in zip(dims, told.dims, strict=False)]
        if len(dims) != len(told.dims) or any(a is not None and b is not None and a != b for a, b in numbers):
            raise _contradicts("shape", where, _shape(dims), _shape(told.dims))


def _contradicts(what: str, where: str, found: str, told: str) -> ArgumentError:
    return ArgumentError(
        f"the model says another {what} of an output than its nodes give",
        where=where,
        expected=f"{found}, which the nodes give",
        got=f"{told}, which the model says",
        hint=f"correct the {what} in graph.output, or leave it out",
    )


def _type(held: ir.TypeProtocol) -> str:
    dtype = str(held.dtype)
    return (
        dtype if isinstance(held, ir.TensorType) else f"{type(held).__name__.removesuffix('Type').lower()} of {dtype}"
    )


def _shape(dims: list[Dim]) -> str:
    return f"[{', '.join('?' if d.is_anonymous else str(d) for d in dims)}]"
