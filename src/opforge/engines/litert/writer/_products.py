"""Products of matrices, reductions, normalisation."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from opforge.engines.litert._dtypes import FILE_NUMBERS
from opforge.engines.litert.writer._scope import Row, Scope, refuse
from opforge.passes import _edit

__all__ = ["ROWS"]


def _multiplied(scope: Scope, a: ir.Value, b: ir.Value, out: int) -> None:
    """Write a product; a constant matrix is a layer, which XNNPACK packs once."""
    weights = _edit.array(b)
    ranks = len(scope.dims(a)), len(scope.dims(b))
    if weights is not None and weights.ndim == 2 and ranks[0] >= 2 and scope.dtype(a) == "f32":
        turned = scope.constant(np.ascontiguousarray(weights.T))
        scope.node(
            "FULLY_CONNECTED",
            [scope.tensor(a), turned],
            [out],
            "FullyConnectedOptions",
            keepNumDims=True,
            weightsFormat=0,
            fusedActivationFunction=0,
        )
        return
    fields = {"adjX": False, "adjY": False}
    scope.node("BATCH_MATMUL", [scope.tensor(a), scope.tensor(b)], [out], "BatchMatMulOptions", **fields)


def _matmul(scope: Scope, node: ir.Node) -> None:
    a, b = node.inputs
    assert a is not None and b is not None
    if min(len(scope.dims(a)), len(scope.dims(b))) < 2:
        raise refuse(node, "LiteRT multiplies matrices, not vectors", [scope.dims(a), scope.dims(b)])
    _multiplied(scope, a, b, scope.define(node.outputs[0]))


def _gemm(scope: Scope, node: ir.Node) -> None:
    a, b = node.inputs[:2]
    c = node.inputs[2] if len(node.inputs) > 2 else None
    assert a is not None and b is not None
    out = node.outputs[0]
    dtype, dims = scope.dtype(out), scope.dims(out)
    alpha, beta = _edit.attribute(node, "alpha", 1.0), _edit.attribute(node, "beta", 1.0)
    fields = {"adjX": bool(_edit.attribute(node, "transA", 0)), "adjY": bool(_edit.attribute(node, "transB", 0))}
    product = scope.made(
        "BATCH_MATMUL", [scope.tensor(a), scope.tensor(b)], dtype, dims, "BatchMatMulOptions", **fields
    )
    if alpha != 1.0:
        product = scope.made("MUL", [product, scope.scalar(alpha, dtype)], dtype, dims, "MulOptions")
    if c is None:
        return scope.alias(out, product) if not out.is_graph_output() else _copied(scope, product, out)
    bias = scope.tensor(c)
    if beta != 1.0:
        bias = scope.made("MUL", [bias, scope.scalar(beta, dtype)], dtype, scope.dims(c), "MulOptions")
    return scope.node("ADD", [product, bias], [scope.define(out)], "AddOptions")


def _copied(scope: Scope, tensor: int, out: ir.Value) -> None:
    scope.reshape(tensor, scope.define(out), scope.dims(out), out)


_REDUCERS: Final = {
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceProd": "REDUCE_PROD",
    "ReduceSum": "SUM",
}

_AROUND: Final = {
    "ReduceL1": ("ABS", "AbsOptions", ""),
    "ReduceL2": ("SQUARE", "SquareOptions", "SQRT"),
    "ReduceLogSum": ("", "", "LOG"),
    "ReduceSumSquare": ("SQUARE", "SquareOptions", ""),
}
"""Sums of something, and what is taken of the sum."""


def _reduce(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    rank = len(scope.dims(value))
    axes = scope.integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if not axes and _edit.attribute(node, "noop_with_empty_axes", 0):
        raise refuse(node, "a reduction of no axes")
    places = scope.constant(sorted(a % rank for a in axes) if axes else list(range(rank)))
    fields = {"keepDims": bool(_edit.attribute(node, "keepdims", 1))}
    x, dtype = scope.tensor(value), scope.dtype(out)
    if node.op_type in _REDUCERS:
        return scope.node(_REDUCERS[node.op_type], [x, places], [scope.define(out)], "ReducerOptions", **fields)
    before, options, after = _AROUND[node.op_type]
    if before:
        x = scope.made(before, [x], dtype, scope.dims(value), options)
    if not after:
        return scope.node("SUM", [x, places], [scope.define(out)], "ReducerOptions", **fields)
    total = scope.made("SUM", [x, places], dtype, scope.dims(out), "ReducerOptions", **fields)
    return scope.node(after, [total], [scope.define(out)])


def _arg(kind: str, options: str) -> Row:
    def row(scope: Scope, node: ir.Node) -> None:
        value, out = node.inputs[0], node.outputs[0]
        assert value is not None
        if _edit.attribute(node, "select_last_index", 0):
            raise refuse(node, "LiteRT takes the first of equal elements", "select_last_index=1")
        dims = scope.dims(value)
        axis = _edit.attribute(node, "axis", 0) % len(dims)
        inputs = [scope.tensor(value), scope.constant(np.array(axis, np.int32))]
        kept = bool(_edit.attribute(node, "keepdims", 1))
        rest = [*dims[:axis], *dims[axis + 1 :]]
        made = scope.new("i64", rest) if kept else scope.define(out)
        scope.node(kind, inputs, [made], options, outputType=FILE_NUMBERS["i64"])
        if kept:
            place = scope.constant(np.array(axis, np.int32))
            scope.node("EXPAND_DIMS", [made, place], [scope.define(out)], "ExpandDimsOptions")

    return row


def _softmax(kind: str, options: str, **fields: object) -> Row:
    def row(scope: Scope, node: ir.Node) -> None:
        value, out = node.inputs[0], node.outputs[0]
        assert value is not None
        dims = scope.dims(value)
        rank = len(dims)
        axis = _edit.attribute(node, "axis", -1) % rank
        if axis == rank - 1:
            return scope.node(kind, [scope.tensor(value)], [scope.define(out)], options, **fields)
        perm = list(range(rank))
        perm[axis], perm[-1] = perm[-1], perm[axis]
        turned = scope.new(scope.dtype(value), [dims[k] for k in perm])
        scope.transpose(scope.tensor(value), turned, perm)
        made = scope.made(kind, [turned], scope.dtype(value), [dims[k] for k in perm], options, **fields)
        return scope.transpose(made, scope.define(out), perm)

    return row


def _layer_normalization(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    if any(o is not None and o.uses() for o in node.outputs[1:]):
        raise refuse(node, "mean and deviation of a LayerNormalization cannot be written")
    dims, dtype = scope.dims(value), scope.dtype(value)
    rank = len(dims)
    first = _edit.attribute(node, "axis", -1) % rank
    small = [*dims[:first], *[1] * (rank - first)]
    axes, keep = scope.constant(list(range(first, rank))), {"keepDims": True}
    x = scope.tensor(value)
    mean = scope.made("MEAN", [x, axes], dtype, small, "ReducerOptions", **keep)
    off = scope.made("SUB", [x, mean], dtype, dims, "SubOptions")
    squares = scope.made("MUL", [off, off], dtype, dims, "MulOptions")
    variance = scope.made("MEAN", [squares, axes], dtype, small, "ReducerOptions", **keep)
    epsilon = scope.scalar(_edit.attribute(node, "epsilon", 1e-5), dtype)
    root = scope.made("RSQRT", [scope.made("ADD", [variance, epsilon], dtype, small, "AddOptions")], dtype, small)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    scaled = scope.made("MUL", [off, root], dtype, dims, "MulOptions")
    last = scope.define(out) if bias is None else scope.new(dtype, dims)
    scope.node("MUL", [scaled, scope.tensor(node.inputs[1])], [last], "MulOptions")
    if bias is not None:
        scope.node("ADD", [last, scope.tensor(bias)], [scope.define(out)], "AddOptions")


def _top_k(scope: Scope, node: ir.Node) -> None:
    value = node.inputs[0]
    assert value is not None
    rank = len(scope.dims(value))
    largest = _edit.attribute(node, "largest", 1)
    if _edit.attribute(node, "axis", -1) % rank != rank - 1 or not largest:
        raise refuse(node, "LiteRT has the largest elements of the last axis only")
    count = scope.constant(np.array((scope.integers(node.inputs[1]) or [1])[0], np.int32))
    values, places = node.outputs
    small = scope.new("i32", scope.dims(places))
    scope.node("TOPK_V2", [scope.tensor(value), count], [scope.define(values), small], "TopKV2Options")
    scope.node(
        "CAST",
        [small],
        [scope.define(places)],
        "CastOptions",
        inDataType=FILE_NUMBERS["i32"],
        outDataType=FILE_NUMBERS["i64"],
    )


ROWS: Final[dict[str, Row]] = {
    **dict.fromkeys((*_REDUCERS, *_AROUND), _reduce),
    "ArgMax": _arg("ARG_MAX", "ArgMaxOptions"),
    "ArgMin": _arg("ARG_MIN", "ArgMinOptions"),
    "Gemm": _gemm,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _softmax("LOG_SOFTMAX", "LogSoftmaxOptions"),
    "MatMul": _matmul,
    "Softmax": _softmax("SOFTMAX", "SoftmaxOptions", beta=1.0),
    "TopK": _top_k,
}
