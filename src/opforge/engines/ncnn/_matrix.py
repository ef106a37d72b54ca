"""Matrix products and tables of rows: MatMul, Gemm, Gather, Einsum's plain cousins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import onnx_ir as ir

from opforge.engines.ncnn._builder import Blob, Builder, Refused, attribute, axis_of
from opforge.engines.ncnn._elementwise import Rule
from opforge.engines.ncnn._net import Array, Param, Weight
from opforge.passes import _edit
from opforge.passes._dims import Dim

__all__ = ["RULES"]

_ADD, _MUL = 0, 2


def _inner_product(
    b: Builder, node: ir.Node, x: Blob, weight: Array, bias: Array | None, output: ir.Value | None = None
) -> None:
    """Multiply rows by a constant matrix, one row of ``weight`` per output column."""
    params: dict[int, Param] = {0: weight.shape[0], 1: int(bias is not None), 2: weight.size}
    weights = [Weight(np.ascontiguousarray(weight).reshape(-1), tagged=True)]
    if bias is not None:
        weights.append(Weight(bias.reshape(-1), tagged=False))
    b.layer(node, "InnerProduct", [x], params, weights, output=output)


def _matmul(b: Builder, node: ir.Node) -> None:
    left, right = node.inputs
    matrix = _edit.array(right)
    x = b.blob(left)
    if matrix is not None and matrix.ndim == 2 and _edit.array(left) is None and len(x.sizes) <= 2:
        shifted = _bias_behind(b, node, matrix.shape[1])
        bias = None if shifted is None else b.weight(shifted[1], "a bias")
        _inner_product(b, node, x, b.weight(right, "a matrix").T, bias, None if shifted is None else shifted[0])
        if shifted is not None:
            b.done.add(shifted[2])
        return
    if min(len(b.dims(left)), len(b.dims(right))) < 2:
        raise Refused("a product with a vector that is no constant matrix's")
    # The batch axes are broadcast; equal numbers of axes say how.
    batch = b.dims(node.outputs[0])[:-2]
    blobs, lead = _same_rank(b, node, len(batch) + 2)
    b.layer(node, "MatMul", blobs, {0: 0}, lead=lead)


def _same_rank(b: Builder, node: ir.Node, rank: int) -> tuple[list[Blob], int]:
    dims = b.dims(node.outputs[0])
    if rank == 2:
        return [b.full(v) for v in node.inputs], 0
    return b.same_rank(node.inputs, dims)


def _bias_behind(b: Builder, node: ir.Node, columns: int) -> tuple[ir.Value, ir.Value, ir.Node] | None:
    """Return (sum, bias, node) where the one reader of a product adds a constant row to it."""
    reader = _edit.only_consumer(node.outputs[0])
    if reader is None or not _edit.is_op(reader, "Add"):
        return None
    other = reader.inputs[1] if reader.inputs[0] is node.outputs[0] else reader.inputs[0]
    row = _edit.array(other)
    if (
        other is None
        or row is None
        or row.shape[-1:] != (columns,)
        or row.size != columns
        or row.ndim > len(b.dims(node.outputs[0]))
    ):
        return None
    return reader.outputs[0], other, reader


def _gemm(b: Builder, node: ir.Node) -> None:
    alpha, beta = float(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0))
    left, right = node.inputs[0], node.inputs[1]
    third = node.inputs[2] if len(node.inputs) > 2 and beta != 0.0 else None
    x = b.full(left)
    if int(attribute(node, "transA", 0)):
        x = b.add("Permute", [x], {0: 1}, dims=x.dims[::-1], lead=0, name=f"{x.name}__transposed")
    columns = b.dims(node.outputs[0])[1]
    matrix = _edit.array(right)
    bias = _row(third, columns.constant)
    if matrix is not None and (third is None or bias is not None):
        weight = np.asarray(matrix if int(attribute(node, "transB", 0)) else matrix.T, np.float32) * np.float32(alpha)
        _inner_product(b, node, x, weight, None if bias is None else bias * np.float32(beta))
        return
    y = b.full(right)
    dims = b.dims(node.outputs[0])
    if int(attribute(node, "transB", 0)):
        y = b.add("Permute", [y], {0: 1}, dims=y.dims[::-1], lead=0, name=f"{y.name}__transposed")
    total = b.add("MatMul", [x, y], {0: 0}, dims=dims, lead=0, name=f"{node.outputs[0].name}__product")
    if alpha != 1.0:
        total = b.add("BinaryOp", [total], {0: _MUL, 1: 1, 2: alpha}, dims=dims, lead=0, name=f"{total.name}__scaled")
    if third is None:
        b.give(node.outputs[0], total)
        return
    held, _ = b.same_rank([third], dims)
    shift = b.form(held[0], held[0].dims, 0)
    if beta != 1.0:
        scaled = {0: _MUL, 1: 1, 2: beta}
        shift = b.add("BinaryOp", [shift], scaled, dims=shift.dims, lead=0, name=f"{shift.name}__scaled")
    b.layer(node, "BinaryOp", [total, shift], {0: _ADD}, lead=0)


def _row(value: ir.Value | None, columns: int | None) -> Array | None:
    """Return a constant that is added to every row, as one row."""
    data = _edit.array(value)
    if data is None or columns is None or (data.ndim == 2 and data.shape[0] != 1) or data.size not in (1, columns):
        return None
    return np.ascontiguousarray(np.broadcast_to(np.asarray(data, np.float32).reshape(-1), (columns,)))


def _gather(b: Builder, node: ir.Node) -> None:
    axis = int(attribute(node, "axis", 0))
    table, index = _edit.array(node.inputs[0]), _edit.array(node.inputs[1])
    if table is not None and index is None:
        _embed(b, node, table, axis)
        return
    if index is None:
        raise Refused("rows of a tensor by computed indices")
    numbers = [int(v) for v in index.reshape(-1)]
    x = b.raw(node.inputs[0])
    if x.lead and axis % len(x.dims) == 0:
        x = b.full(node.inputs[0])
    place = axis_of(x, axis)
    size = x.sizes[place].constant
    if size is None and any(v < 0 for v in numbers):
        raise Refused("indices from the end of an axis of open size")
    numbers = [v % size if size is not None else v for v in numbers]
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Refused("indices that are no range")
    sizes = list(x.dims)
    sizes[axis % len(x.dims)] = Dim.of(len(numbers))
    cut = replace(x, dims=tuple(sizes))
    if size != len(numbers):
        cut = replace(cut, name=b.name(f"{node.outputs[0].name}__cut"))
        b.add_many("Crop", [x], [cut], {9: (numbers[0],), 10: (numbers[-1] + 1,), 11: (place,)})
    dims = b.dims(node.outputs[0])
    batch = bool(x.lead or x.inside) and len(dims) > 1 and dims[0].constant == 1
    b.give(node.outputs[0], b.form(cut, dims, int(batch)))


def _embed(b: Builder, node: ir.Node, table: Array, axis: int) -> None:
    if axis % table.ndim or table.ndim != 2:
        raise Refused("rows along another axis than the first of a matrix")
    dims = b.dims(node.outputs[0])
    index = b.blob(node.inputs[1])
    if not index.integer:
        raise Refused("indices that are computed: ncnn's tensors of the kind come from inputs")
    if len(index.dims) > 2:
        raise Refused("indices of more than two axes")
    flat = b.inner(node.inputs[1], "Gather") if len(index.dims) == 2 else index
    lead = flat.lead
    params: dict[int, Param] = {0: table.shape[1], 1: table.shape[0], 3: table.size, 31: 6}
    weight = Weight(b.weight(node.inputs[0], "the table").reshape(-1), tagged=True)
    inside = (Dim.of(1),) * lead + (flat.sizes[0], Dim.of(table.shape[1]))
    rows = b.add("Embed", [flat], params, [weight], dims=inside, lead=lead, name=node.outputs[0].name or "rows")
    b.give(node.outputs[0], b.form(rows, dims, min(lead, len(dims) - 1)))


RULES: Final[Mapping[str, Rule]] = {"MatMul": _matmul, "Gemm": _gemm, "Gather": _gather}
"""Operator -> what adds its layers."""
