"""Bodies of standard operators: LpNormalization, GlobalLpPool, AffineGrid, Pow of mixed types, integer sampling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from opforge.bin.lowering.bodies._writer import Body
from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["BODIES"]

FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _lp_normalization(b: Body, node: ir.Node) -> list[str]:
    """X / norm along an axis; 0 where the norm is 0."""
    x, order = b.inputs[0], int(_edit.attribute(node, "p", 2))
    norm = b.op(f"ReduceL{order}", x, b.integers(int(_edit.attribute(node, "axis", -1))), keepdims=1)
    zero = b.number(0.0, x)
    return [b.op("Where", b.op("Equal", norm, zero), zero, b.op("Div", x, norm))]


def _global_lp_pool(b: Body, node: ir.Node) -> list[str] | None:
    dims, order = dims_of(node.inputs[0]), int(_edit.attribute(node, "p", 2))
    if dims is None:
        return None
    x, axes = b.inputs[0], b.integers(*range(2, len(dims)))
    if order in (1, 2):
        return [b.op(f"ReduceL{order}", x, axes, keepdims=1)]
    powers = b.op("Pow", b.op("Abs", x), b.number(order, x))
    return [b.op("Pow", b.op("ReduceSum", powers, axes, keepdims=1), b.number(1 / order, x))]


def _affine_grid(b: Body, node: ir.Node) -> list[str] | None:
    """Coordinates of every pixel of the result, multiplied with theta [N, r, r+1]."""
    theta, size = b.inputs
    dims = dims_of(node.inputs[0])
    spatial = dims[1].constant if dims is not None and len(dims) == 3 else None
    if spatial not in (2, 3):
        return None
    counts = [b.op("Gather", size, b.constant(2 + k, np.int64)) for k in range(spatial)]
    shape = b.op("Slice", size, b.integers(2), b.integers(2 + spatial))
    one, two = b.number(1.0, theta), b.number(2.0, theta)
    planes = []
    for k, count in enumerate(counts):
        index = b.op("Range", b.constant(0, np.int64), count, b.constant(1, np.int64))
        place, length = b.op("CastLike", index, theta), b.op("CastLike", count, theta)
        if _edit.attribute(node, "align_corners", 0):
            span = b.op("Max", b.op("Sub", length, one), one)
            line = b.op("Sub", b.op("Div", b.op("Mul", place, two), span), one)
        else:
            line = b.op("Sub", b.op("Div", b.op("Add", b.op("Mul", place, two), one), length), one)
        axes = [j for j in range(spatial) if j != k]
        planes.append(b.op("Expand", b.op("Unsqueeze", line, b.integers(*axes)), shape))
    planes = [*planes[::-1], b.op("Expand", one, shape)]  # x before y before z, then 1
    last = b.integers(-1)
    points = b.op("Concat", *[b.op("Unsqueeze", p, last) for p in planes], axis=-1)
    flat = b.op("Reshape", points, b.integers(-1, spatial + 1))
    moved = b.op("MatMul", flat, b.op("Transpose", theta, perm=[0, 2, 1]))
    batch = b.op("Slice", size, b.integers(0), b.integers(1))
    return [b.op("Reshape", moved, b.op("Concat", batch, shape, b.integers(spatial), axis=0))]


def _pow(b: Body, node: ir.Node) -> list[str] | None:
    """Base and exponent of two types: the result has the base's, computed in one that holds both."""
    base, exponent = (v.dtype if v is not None else None for v in node.inputs)
    if base is None or exponent is None or base == exponent:
        return None
    x, y = b.inputs
    if base in FLOATS:
        return [b.op("Pow", x, b.op("CastLike", y, x))]
    common = ir.DataType.DOUBLE if exponent in FLOATS else ir.DataType.INT64
    return [b.cast(b.op("Pow", b.cast(x, common), b.cast(y, common)), base)]


def _through_floats(*modes: str) -> Callable[[Body, ir.Node], list[str] | None]:
    """Integers are interpolated as numbers of double precision."""

    def rule(b: Body, node: ir.Node) -> list[str] | None:
        x = node.inputs[0]
        if x is None or x.dtype is None or x.dtype in FLOATS or str(_edit.attribute(node, "mode", "")) not in modes:
            return None
        wide = b.cast(b.inputs[0], ir.DataType.DOUBLE)
        attributes = {name: _edit.attribute(node, name) for name in node.attributes}
        return [b.cast(b.op(node.op_type, wide, *b.inputs[1:], **attributes), x.dtype)]

    return rule


BODIES = {
    ("", "LpNormalization"): _lp_normalization,
    ("", "GlobalLpPool"): _global_lp_pool,
    ("", "AffineGrid"): _affine_grid,
    ("", "Pow"): _pow,
    ("", "GridSample"): _through_floats("", "linear", "nearest", "cubic"),
    ("", "Resize"): _through_floats("linear", "cubic"),
}
