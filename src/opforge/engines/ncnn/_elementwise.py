"""Elementwise operators of ONNX and their layers in ncnn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import onnx_ir as ir

from opforge.engines.ncnn._builder import Builder, Refused, attribute
from opforge.engines.ncnn._net import Param, Weight
from opforge.passes import _edit

__all__ = ["RULES"]

_FLT_MAX = float(np.finfo(np.float32).max)

PLAIN: Final[dict[str, tuple[str, dict[int, Param]]]] = {
    "Abs": ("UnaryOp", {0: 0}),
    "Acos": ("UnaryOp", {0: 13}),
    "Asin": ("UnaryOp", {0: 12}),
    "Atan": ("UnaryOp", {0: 14}),
    "Ceil": ("UnaryOp", {0: 3}),
    "Cos": ("UnaryOp", {0: 10}),
    "Erf": ("Erf", {}),
    "Exp": ("UnaryOp", {0: 7}),
    "Floor": ("UnaryOp", {0: 2}),
    "Log": ("UnaryOp", {0: 8}),
    "Mish": ("Mish", {}),
    "Neg": ("UnaryOp", {0: 1}),
    "Reciprocal": ("UnaryOp", {0: 15}),
    "Relu": ("ReLU", {}),
    "Round": ("UnaryOp", {0: 18}),
    "Sigmoid": ("Sigmoid", {}),
    "Sin": ("UnaryOp", {0: 9}),
    "Softplus": ("Softplus", {}),
    "Sqrt": ("UnaryOp", {0: 5}),
    "Tan": ("UnaryOp", {0: 11}),
    "Tanh": ("TanH", {}),
}
"""One input, no attributes: operator -> layer, parameters."""

PARAMETRIC: Final[dict[str, tuple[str, tuple[tuple[int, str, float], ...]]]] = {
    "Celu": ("CELU", ((0, "alpha", 1.0),)),
    "Elu": ("ELU", ((0, "alpha", 1.0),)),
    "HardSigmoid": ("HardSigmoid", ((0, "alpha", 0.2), (1, "beta", 0.5))),
    "LeakyRelu": ("ReLU", ((0, "alpha", 0.01),)),
    "Selu": ("SELU", ((0, "alpha", 1.67326319217681884765625), (1, "gamma", 1.05070102214813232421875))),
    "Shrink": ("Shrink", ((0, "bias", 0.0), (1, "lambd", 0.5))),
}
"""One input, attributes that are numbers: operator -> layer, rows of parameter, attribute, ONNX's default."""

BINARY: Final[dict[str, tuple[int, int]]] = {
    "Add": (0, 0),
    "Sub": (1, 7),
    "Mul": (2, 2),
    "Div": (3, 8),
    "Max": (4, 4),
    "Min": (5, 5),
    "Pow": (6, 9),
}
"""Operator -> operation of BinaryOp, and the one with its operands exchanged."""

_SQUARE, _SQRT, _RECIPROCAL, _MUL, _POW = 4, 5, 15, 2, 6
_POWERS: Final[dict[float, int]] = {2.0: _SQUARE, 0.5: _SQRT, -1.0: _RECIPROCAL}
"""Powers that are a UnaryOp: its vectorised power takes no negative numbers."""


def _plain(b: Builder, node: ir.Node) -> None:
    kind, params = PLAIN[node.op_type]
    b.layer(node, kind, [b.blob(node.inputs[0])], params)


def _parametric(b: Builder, node: ir.Node) -> None:
    kind, rows = PARAMETRIC[node.op_type]
    params: dict[int, Param] = {k: float(attribute(node, name, default)) for k, name, default in rows}
    b.layer(node, kind, [b.blob(node.inputs[0])], params)


def _binary(b: Builder, node: ir.Node) -> None:
    forward, exchanged = BINARY[node.op_type]
    dims = b.dims(node.outputs[0])
    if len(node.inputs) == 1:
        b.give(node.outputs[0], b.blob(node.inputs[0]))
        return
    if len(node.inputs) == 2:
        for value, number, operation in (
            (node.inputs[0], node.inputs[1], forward),
            (node.inputs[1], node.inputs[0], exchanged),
        ):
            scalar = _finite(number)
            if scalar is not None and _edit.array(value) is None and len(b.dims(value)) == len(dims):
                b.layer(node, "BinaryOp", [b.blob(value)], {0: operation, 1: 1, 2: scalar})
                return
    blobs, lead = b.same_rank(node.inputs, dims)
    total = blobs[0]
    for blob in blobs[1:-1]:
        wide = tuple(x if y == 1 else y for x, y in zip(total.dims, blob.dims, strict=True))
        total = b.add(
            "BinaryOp", [total, blob], {0: forward}, dims=wide, lead=lead, name=f"{total.name}__{node.op_type}"
        )
    b.layer(node, "BinaryOp", [total, blobs[-1]], {0: forward}, lead=lead)


def _finite(value: ir.Value | None) -> float | None:
    number = _edit.scalar(value)
    return number if number is not None and np.isfinite(np.float32(number)) else None


def _pow(b: Builder, node: ir.Node) -> None:
    power = _edit.scalar(node.inputs[1])
    if power is None or len(b.dims(node.inputs[0])) < len(b.dims(node.outputs[0])):
        raise Refused("a power that is no constant number: ncnn's powers of negative numbers are not ONNX's")
    x = b.blob(node.inputs[0])
    if power in _POWERS:
        b.layer(node, "UnaryOp", [x], {0: _POWERS[power]})
    elif power == 3.0:
        square = b.add("UnaryOp", [x], {0: _SQUARE}, dims=x.dims, lead=x.lead, name=f"{x.name}__square")
        b.layer(node, "BinaryOp", [square, x], {0: _MUL})
    elif power == 1.0:
        b.give(node.outputs[0], x)
    else:
        raise Refused(f"the power {power:g}: ncnn's powers of negative numbers are not ONNX's")


def _sum(b: Builder, node: ir.Node) -> None:
    """Sum and Mean of many: a chain of additions."""
    blobs, lead = b.same_rank(node.inputs, b.dims(node.outputs[0]))
    total = blobs[0]
    for blob in blobs[1:]:
        wide = tuple(x if y == 1 else y for x, y in zip(total.dims, blob.dims, strict=True))
        total = b.add("BinaryOp", [total, blob], {0: 0}, dims=wide, lead=lead, name=f"{node.outputs[0].name}__sum")
    if node.op_type == "Mean":
        b.layer(node, "BinaryOp", [total], {0: 2, 1: 1, 2: 1.0 / len(blobs)})
    else:
        b.give(node.outputs[0], total)


def _clip(b: Builder, node: ir.Node) -> None:
    bounds = []
    for k, free in ((1, -_FLT_MAX), (2, _FLT_MAX)):
        value = node.inputs[k] if len(node.inputs) > k else None
        bound = free if value is None else _edit.scalar(value)
        if bound is None:
            raise Refused("bounds must be constants")
        bounds.append(float(np.clip(bound, -_FLT_MAX, _FLT_MAX)))
    b.layer(node, "Clip", [b.blob(node.inputs[0])], {0: bounds[0], 1: bounds[1]})


def _gelu(b: Builder, node: ir.Node) -> None:
    fast = attribute(node, "approximate", "none") == "tanh"
    b.layer(node, "GELU", [b.blob(node.inputs[0])], {0: int(fast)})


def _hard_swish(b: Builder, node: ir.Node) -> None:
    b.layer(node, "HardSwish", [b.blob(node.inputs[0])], {0: 1.0 / 6.0, 1: 0.5})


def _swish(b: Builder, node: ir.Node) -> None:
    x, alpha = b.blob(node.inputs[0]), float(attribute(node, "alpha", 1.0))
    if alpha == 1.0:
        b.layer(node, "Swish", [x])
        return
    scaled = b.add("BinaryOp", [x], {0: 2, 1: 1, 2: alpha}, dims=x.dims, lead=x.lead, name=f"{x.name}__scaled")
    gate = b.add("Sigmoid", [scaled], dims=x.dims, lead=x.lead, name=f"{x.name}__gate")
    b.layer(node, "BinaryOp", [x, gate], {0: 2})


def _prelu(b: Builder, node: ir.Node) -> None:
    slope = b.weight(node.inputs[1], "the slope")
    if slope.size == 1:
        b.layer(node, "ReLU", [b.blob(node.inputs[0])], {0: float(slope.reshape(-1)[0])})
        return
    x = b.inner(node.inputs[0], "PRelu")
    shape = (1,) * (len(x.dims) - slope.ndim) + slope.shape
    if len(x.dims) < 3 or any(size != 1 for k, size in enumerate(shape) if k != 1):
        raise Refused("slopes that differ along other axes than that of the channels")
    b.layer(node, "PReLU", [x], {0: slope.size}, [Weight(slope.reshape(-1), tagged=False)])


def _batch_norm(b: Builder, node: ir.Node) -> None:
    scale, shift, mean, variance = (b.weight(v, "statistics") for v in node.inputs[1:5])
    params: dict[int, Param] = {0: scale.size, 1: float(attribute(node, "epsilon", 1e-5))}
    x = b.inner(node.inputs[0], "BatchNormalization")
    weights = [Weight(w.reshape(-1), tagged=False) for w in (scale, mean, variance, shift)]
    b.layer(node, "BatchNorm", [x], params, weights)


def _as_is(b: Builder, node: ir.Node) -> None:
    value, blob = node.outputs[0], b.blob(node.inputs[0])
    if node.inputs[0] is not None and node.inputs[0].dtype != value.dtype:
        raise Refused(f"from {node.inputs[0].dtype} to {value.dtype}: ncnn has no layer that converts integers")
    b.give(value, replace(blob, dims=b.dims(value)))


Rule = Callable[[Builder, ir.Node], None]
RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(PLAIN, _plain),
    **dict.fromkeys(PARAMETRIC, _parametric),
    **dict.fromkeys(BINARY, _binary),
    "Pow": _pow,
    "Sum": _sum,
    "Mean": _sum,
    "Clip": _clip,
    "Gelu": _gelu,
    "HardSwish": _hard_swish,
    "Swish": _swish,
    "PRelu": _prelu,
    "BatchNormalization": _batch_norm,
    "Identity": _as_is,
    "Cast": _as_is,
    "CastLike": _as_is,
}
"""Operator -> what adds its layers."""
