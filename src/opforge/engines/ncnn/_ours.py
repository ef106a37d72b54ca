"""Adding a node of ours to the network: dtypes, forms, parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from opforge.engines.ncnn._builder import MOST_AXES, Blob, Builder, Refused
from opforge.engines.ncnn._custom import AS_IS, NO_AXES, UNREAD, WITHOUT_FIRST, CustomLayer
from opforge.passes._operators import attributes_of
from opforge.schema import ABSENT, DType, Operator, Parameter
from opforge.schema.dtypes import f32, i32, i64
from opforge.schema.infer import ShapeLike

__all__ = ["add_custom", "form_of"]


def form_of(blob: Blob) -> int:
    """Return the form of a blob, as the parameters of our layers number it."""
    return NO_AXES if not blob.dims else WITHOUT_FIRST if blob.lead else AS_IS


def add_custom(b: Builder, node: ir.Node, operator: Operator, kind: str) -> None:
    """Add the layer of a node.

    Raises:
        Refused: a dtype, a rank or an attribute has no form in ncnn.
        ArgumentError: shapes contradict the operator's rule.
    """
    signature = operator.signature
    inputs = _groups(signature.inputs, node.inputs)
    variables: dict[str, DType] = {}
    blobs: list[Blob] = []
    dtypes: list[DType] = []
    for parameter, values in zip(signature.inputs, inputs, strict=True):
        for value in values:
            dtype = variables.setdefault(parameter.type, _narrow(value, parameter, operator))
            blob = b.blob(value)
            if blob.integer != (dtype == i32):
                raise Refused(f"{blob.name} holds {'int32' if blob.integer else 'float32'} in ncnn, not {dtype}")
            blobs.append(blob)
            dtypes.append(dtype)
    attributes = attributes_of(node, operator)
    _require_shapes(node, operator, dtypes, attributes)
    made: list[Blob] = []
    results: list[int] = []
    for parameter, values in zip(signature.outputs, _groups(signature.outputs, node.outputs), strict=True):
        if not values:
            results.append(UNREAD)
        for value in values:
            if not (value.uses() or value.is_graph_output()):
                results.append(UNREAD)
                continue
            dtype = parameter.dtype or variables[parameter.type]
            if dtype not in (f32, i32):
                raise Refused(f"{value.name} is {dtype}: ncnn's tensors hold float32 or int32")
            dims = b.dims(value)
            one = len(dims) > 1 and dims[0].constant == 1
            lead = int(one and (len(dims) > MOST_AXES or any(x.lead for x in blobs)))
            if len(dims) - lead > MOST_AXES:
                raise Refused(f"{value.name} has {len(dims)} axes; ncnn has {MOST_AXES}")
            made.append(Blob(b.name(value.name or kind), dims, lead, integer=dtype == i32))
            b.give(value, made[-1])
            results.append(form_of(made[-1]))
    layer = CustomLayer(
        operator,
        operator.coerce(attributes),
        tuple(map(len, inputs)),
        tuple(dtypes),
        tuple(map(form_of, blobs)),
        tuple(results),
    )
    try:
        params = layer.params()
    except ValueError as problem:
        raise Refused(str(problem)) from None
    b.add_many(kind, blobs, made, params)


def _require_shapes(
    node: ir.Node, operator: Operator, dtypes: Sequence[DType], attributes: Mapping[str, object]
) -> None:
    """Hold the shapes against the operator's rule, as far as they are known.

    Raises:
        ArgumentError: they contradict it.
    """
    shapes: list[ShapeLike] = []
    for value in node.inputs:
        dims = Builder.dims(value) if value is not None else None
        shapes.append(ABSENT if dims is None else [d.constant if d.constant is not None else str(d) for d in dims])
    rest = iter(dtypes)
    types = [None if value is None else next(rest) for value in node.inputs]
    where = f"{operator.qualified_name} ({node.name or node.outputs[0].name})"
    operator.bind(shapes, types, attributes, where=where)


def _groups(parameters: Sequence[Parameter], values: Sequence[ir.Value | None]) -> list[list[ir.Value]]:
    """Return the values of each parameter; the last one may have many."""
    groups = []
    for k, parameter in enumerate(parameters):
        own = values[k:] if parameter.variadic else values[k : k + 1]
        groups.append([v for v in own if v is not None])
    return groups


def _narrow(value: ir.Value, parameter: Parameter, operator: Operator) -> DType:
    """Return the dtype that a value has in ncnn: int64 becomes int32 where the operator takes that."""
    dtype = DType.from_onnx(int(value.dtype or 0))
    if dtype == i64 and i32 in operator.types.get(parameter.type, ()):
        return i32
    if dtype not in (f32, i32):
        raise Refused(f"{value.name} is {dtype}: ncnn's tensors hold float32 or int32")
    return dtype
