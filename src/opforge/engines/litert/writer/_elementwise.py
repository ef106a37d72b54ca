"""Elementwise operators: most are a row of a table, others a few nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from opforge.engines.litert._dtypes import FILE_NUMBERS
from opforge.engines.litert.writer._scope import TO_IMAGES, Row, Scope, refuse
from opforge.passes import _edit
from opforge.schema import DType

__all__ = ["ROWS"]

_NO_ACTIVATION: Final = {"fusedActivationFunction": 0}

_UNARY: Final[dict[str, tuple[str, str]]] = {
    "Abs": ("ABS", "AbsOptions"),
    "Ceil": ("CEIL", ""),
    "Cos": ("COS", "CosOptions"),
    "Exp": ("EXP", "ExpOptions"),
    "Floor": ("FLOOR", ""),
    "HardSwish": ("HARD_SWISH", "HardSwishOptions"),
    "Log": ("LOG", ""),
    "Neg": ("NEG", "NegOptions"),
    "Not": ("LOGICAL_NOT", "LogicalNotOptions"),
    "Relu": ("RELU", ""),
    "Round": ("ROUND", ""),
    "Sigmoid": ("LOGISTIC", ""),
    "Sign": ("SIGN", "SignOptions"),
    "Sin": ("SIN", ""),
    "Sqrt": ("SQRT", ""),
    "Tanh": ("TANH", ""),
}
"""Operator -> LiteRT's kind and options."""

_BINARY: Final[dict[str, tuple[str, str, bool]]] = {
    "Add": ("ADD", "AddOptions", True),
    "And": ("LOGICAL_AND", "LogicalAndOptions", False),
    "Div": ("DIV", "DivOptions", True),
    "Equal": ("EQUAL", "EqualOptions", False),
    "Greater": ("GREATER", "GreaterOptions", False),
    "GreaterOrEqual": ("GREATER_EQUAL", "GreaterEqualOptions", False),
    "Less": ("LESS", "LessOptions", False),
    "LessOrEqual": ("LESS_EQUAL", "LessEqualOptions", False),
    "Max": ("MAXIMUM", "MaximumMinimumOptions", False),
    "Min": ("MINIMUM", "MaximumMinimumOptions", False),
    "Mul": ("MUL", "MulOptions", True),
    "Or": ("LOGICAL_OR", "LogicalOrOptions", False),
    "Pow": ("POW", "PowOptions", False),
    "Sub": ("SUB", "SubOptions", True),
    "Sum": ("ADD", "AddOptions", True),
}
"""Operator -> LiteRT's kind and options, and whether these name an activation."""


def _out(scope: Scope, node: ir.Node, images: bool) -> int:
    value = node.outputs[0]
    return scope.define_images(value) if images else scope.define(value)


def _input(scope: Scope, value: ir.Value | None, images: bool) -> int:
    return scope.images(value) if images else scope.tensor(value)


def _unary(kind: str, options: str = "", **fields: Any) -> Row:  # noqa: ANN401
    def row(scope: Scope, node: ir.Node) -> None:
        images = scope.is_images(node.inputs[0])
        scope.node(kind, [_input(scope, node.inputs[0], images)], [_out(scope, node, images)], options, **fields)

    return row


def _with_images(scope: Scope, values: list[ir.Value]) -> bool:
    """Whether the values are computed with channels last: some are only there so, and all others can be turned."""
    if not any(scope.is_images(v) for v in values):
        return False
    return all(
        scope.is_images(v)
        or ((data := _edit.array(v)) is not None and ((data.size == 1 and data.ndim <= 4) or data.ndim in (3, 4)))
        for v in values
    )


def _turned(scope: Scope, value: ir.Value) -> int:
    """Return an operand of nodes with channels last; constants are turned, whatever rank they have."""
    data = _edit.array(value)
    if data is None or scope.is_images(value):
        return scope.images(value)
    if data.size == 1:
        return scope.constant(data.reshape(()))
    return scope.constant(np.ascontiguousarray(data.reshape((1,) * (4 - data.ndim) + data.shape).transpose(TO_IMAGES)))


def _nary(kind: str, options: str, activation: bool) -> Row:
    fields: dict[str, Any] = dict(_NO_ACTIVATION) if activation else {}

    def row(scope: Scope, node: ir.Node) -> None:
        values = [v for v in node.inputs if v is not None]
        out = node.outputs[0]
        if len(values) == 1:
            return _identity(scope, node)
        images = _with_images(scope, values) and scope.dtype(out) == scope.dtype(values[0])
        operands = [_turned(scope, v) if images else scope.tensor(v) for v in values]
        left = operands[0]
        for right in operands[1:-1]:
            dims = scope.dims(out)
            left = scope.made(
                kind,
                [left, right],
                scope.dtype(out),
                [dims[k] for k in TO_IMAGES] if images else dims,
                options,
                **fields,
            )
        scope.node(kind, [left, operands[-1]], [_out(scope, node, images)], options, **fields)

    return row


def _identity(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    if not out.is_graph_output():
        if not scope.is_images(value):
            scope.alias(out, scope.tensor(value))
            return
    scope.reshape(scope.tensor(value), scope.define(out), scope.dims(out), out)


def _steps(build: Callable[[Scope, ir.Node, _Steps], int]) -> Row:
    """Make a row of an operator that is several nodes of one shape."""

    def row(scope: Scope, node: ir.Node) -> None:
        images = scope.is_images(node.inputs[0])
        steps = _Steps(scope, node, images)
        steps.last(build(scope, node, steps))

    return row


class _Steps:
    """Nodes that compute one output from one input, elementwise."""

    def __init__(self, scope: Scope, node: ir.Node, images: bool) -> None:
        self.scope = scope
        self.images = images
        self.value = node.outputs[0]
        self.dtype = scope.dtype(self.value)
        dims = scope.dims(self.value)
        self.dims = [dims[k] for k in TO_IMAGES] if images else dims
        self.x = _input(scope, node.inputs[0], images)

    def number(self, value: float) -> int:
        return self.scope.scalar(value, self.dtype)

    def unary(self, name: str, x: int) -> int:
        return self.scope.made(_UNARY[name][0], [x], self.dtype, self.dims, _UNARY[name][1])

    def binary(self, name: str, a: int, b: int) -> int:
        kind, options, activation = _BINARY[name]
        return self.scope.made(kind, [a, b], self.dtype, self.dims, options, **(_NO_ACTIVATION if activation else {}))

    def last(self, tensor: int) -> None:
        """Let the output be what the last step gave."""
        nodes = self.scope.graph.tree.operators
        out = self.scope.define_images(self.value) if self.images else self.scope.define(self.value)
        assert nodes and nodes[-1].outputs == [tensor]
        nodes[-1].outputs = [out]


def _clip(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    low, high = (*(_edit.scalar(v) for v in node.inputs[1:3]), None, None)[:2]
    if any(v is not None and _edit.array(v) is None for v in node.inputs[1:3]):
        raise refuse(node, "bounds that are computed cannot be written")
    if (low, high) == (0.0, 6.0) and steps.dtype == "f32":
        return scope.made("RELU6", [steps.x], steps.dtype, steps.dims)
    x = steps.x
    if low is not None:
        x = steps.binary("Max", x, steps.number(low))
    if high is not None:
        x = steps.binary("Min", x, steps.number(high))
    return x if x != steps.x else steps.binary("Max", x, x)  # without bounds


def _elu(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    return _scaled_elu(steps, _edit.attribute(node, "alpha", 1.0), 1.0)


def _selu(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    alpha = _edit.attribute(node, "alpha", 1.6732632423543772)
    return _scaled_elu(steps, alpha, _edit.attribute(node, "gamma", 1.0507009873554805))


def _celu(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    alpha = _edit.attribute(node, "alpha", 1.0)
    inner = steps.binary("Div", steps.x, steps.number(alpha))
    below = steps.binary("Min", steps.number(0.0), inner)
    return _elu_of(steps, steps.x, below, alpha, 1.0)


def _scaled_elu(steps: _Steps, alpha: float, scale: float) -> int:
    return _elu_of(steps, steps.x, steps.binary("Min", steps.number(0.0), steps.x), alpha, scale)


def _elu_of(steps: _Steps, x: int, below: int, alpha: float, scale: float) -> int:
    """Scale * (max(x, 0) + alpha * (exp(below) - 1)); LiteRT's ELU is exact near 0 and has alpha = 1."""
    bent = steps.scope.made("ELU", [below], steps.dtype, steps.dims)
    if alpha != 1.0:
        bent = steps.binary("Mul", bent, steps.number(alpha))
    result = steps.binary("Add", steps.unary("Relu", x), bent)
    return result if scale == 1.0 else steps.binary("Mul", result, steps.number(scale))


def _hard_sigmoid(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    alpha, beta = _edit.attribute(node, "alpha", 0.2), _edit.attribute(node, "beta", 0.5)
    line = steps.binary("Add", steps.binary("Mul", steps.x, steps.number(alpha)), steps.number(beta))
    return steps.binary("Min", steps.binary("Max", line, steps.number(0.0)), steps.number(1.0))


def _softplus_of(steps: _Steps, x: int) -> int:
    """max(x, 0) + log(1 + exp(-|x|)), which never overflows."""
    tail = steps.unary("Exp", steps.unary("Neg", steps.unary("Abs", x)))
    return steps.binary("Add", steps.unary("Relu", x), steps.unary("Log", steps.binary("Add", tail, steps.number(1.0))))


def _softplus(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    return _softplus_of(steps, steps.x)


def _mish(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    return steps.binary("Mul", steps.x, steps.unary("Tanh", _softplus_of(steps, steps.x)))


def _swish(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    alpha = _edit.attribute(node, "alpha", 1.0)
    inner = steps.x if alpha == 1.0 else steps.binary("Mul", steps.x, steps.number(alpha))
    return steps.binary("Mul", steps.x, steps.unary("Sigmoid", inner))


def _softsign(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    return steps.binary("Div", steps.x, steps.binary("Add", steps.unary("Abs", steps.x), steps.number(1.0)))


def _reciprocal(scope: Scope, node: ir.Node, steps: _Steps) -> int:
    return steps.binary("Div", steps.number(1.0), steps.x)


def _leaky_relu(scope: Scope, node: ir.Node) -> None:
    _unary("LEAKY_RELU", "LeakyReluOptions", alpha=_edit.attribute(node, "alpha", 0.01))(scope, node)


def _prelu(scope: Scope, node: ir.Node) -> None:
    """max(x, 0) + slope * min(x, 0): LiteRT's PRELU wants a slope of its own shape."""
    x, slope, out = node.inputs[0], node.inputs[1], node.outputs[0]
    assert x is not None and slope is not None
    images = _with_images(scope, [x, slope])
    steps = _Steps(scope, node, images)
    below = steps.binary("Min", steps.x, steps.number(0.0))
    turned = _turned(scope, slope) if images else scope.tensor(slope)
    steps.last(steps.binary("Add", steps.unary("Relu", steps.x), steps.binary("Mul", below, turned)))
    assert out is steps.value


def _gelu(scope: Scope, node: ir.Node) -> None:
    tanh = _edit.attribute(node, "approximate", "none") == "tanh"
    _unary("GELU", "GeluOptions", approximate=tanh)(scope, node)


def _cast(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    numbers = {
        "inDataType": FILE_NUMBERS[scope.dtype(value)],
        "outDataType": FILE_NUMBERS[scope.dtype(out)],
    }
    _unary("CAST", "CastOptions", **numbers)(scope, node)


def _mod(scope: Scope, node: ir.Node) -> None:
    if _edit.attribute(node, "fmod", 0):
        raise refuse(node, "LiteRT has no remainder with the sign of the dividend", "fmod=1")
    _nary("FLOOR_MOD", "FloorModOptions", False)(scope, node)


def _pow(scope: Scope, node: ir.Node) -> None:
    """Squares are products; other powers are of one dtype in LiteRT."""
    x, exponent = node.inputs[0], node.inputs[1]
    assert x is not None and exponent is not None
    power = _edit.scalar(exponent)
    keeps = len(scope.dims(exponent)) <= len(scope.dims(x))
    if power == 2.0 and keeps:
        steps = _Steps(scope, node, scope.is_images(x))
        return steps.last(steps.binary("Mul", steps.x, steps.x))
    if power == 0.5 and keeps:
        return _unary("SQRT")(scope, node)
    if scope.dtype(exponent) != scope.dtype(x):
        data = _edit.array(exponent)
        if data is None:
            raise refuse(node, "LiteRT takes powers of one dtype", f"{scope.dtype(x)} to {scope.dtype(exponent)}")
        same = data.astype(DType.parse(scope.dtype(x)).numpy)
        if (same != data).any():
            raise refuse(
                node, "LiteRT takes powers of one dtype", f"{scope.dtype(x)} to {data.reshape(-1)[:4].tolist()}"
            )
        turned = scope.constant(same)
        return scope.node("POW", [scope.tensor(x), turned], [scope.define(node.outputs[0])], "PowOptions")
    return _nary("POW", "PowOptions", False)(scope, node)


def _mean(scope: Scope, node: ir.Node) -> None:
    values = [v for v in node.inputs if v is not None]
    if len(values) == 1:
        return _identity(scope, node)
    out = node.outputs[0]
    total = scope.tensor(values[0])
    for value in values[1:]:
        total = scope.made("ADD", [total, scope.tensor(value)], scope.dtype(out), scope.dims(out), "AddOptions")
    count = scope.scalar(1.0 / len(values), scope.dtype(out))
    return scope.node("MUL", [total, count], [scope.define(out)], "MulOptions")


def _where(scope: Scope, node: ir.Node) -> None:
    scope.node("SELECT_V2", [scope.tensor(v) for v in node.inputs], [scope.define(node.outputs[0])], "SelectV2Options")


def _is_nan(scope: Scope, node: ir.Node) -> None:
    x = scope.tensor(node.inputs[0])
    scope.node("NOT_EQUAL", [x, x], [scope.define(node.outputs[0])], "NotEqualOptions")


def _is_inf(scope: Scope, node: ir.Node) -> None:
    value = node.inputs[0]
    assert value is not None
    if not (_edit.attribute(node, "detect_positive", 1) and _edit.attribute(node, "detect_negative", 1)):
        raise refuse(node, "only both infinities can be detected")
    size = scope.made("ABS", [scope.tensor(value)], scope.dtype(value), scope.dims(value), "AbsOptions")
    infinite = scope.scalar(math.inf, scope.dtype(value))
    scope.node("EQUAL", [size, infinite], [scope.define(node.outputs[0])], "EqualOptions")


def _xor(scope: Scope, node: ir.Node) -> None:
    scope.node("NOT_EQUAL", [scope.tensor(v) for v in node.inputs], [scope.define(node.outputs[0])], "NotEqualOptions")


ROWS: Final[dict[str, Row]] = {
    **{name: _unary(*row) for name, row in _UNARY.items()},
    **{name: _nary(*row) for name, row in _BINARY.items()},
    "Cast": _cast,
    "Celu": _steps(_celu),
    "Clip": _steps(_clip),
    "Elu": _steps(_elu),
    "Gelu": _gelu,
    "HardSigmoid": _steps(_hard_sigmoid),
    "Identity": _identity,
    "IsInf": _is_inf,
    "IsNaN": _is_nan,
    "LeakyRelu": _leaky_relu,
    "Mean": _mean,
    "Mish": _steps(_mish),
    "Mod": _mod,
    "PRelu": _prelu,
    "Pow": _pow,
    "Reciprocal": _steps(_reciprocal),
    "Selu": _steps(_selu),
    "Softplus": _steps(_softplus),
    "Softsign": _steps(_softsign),
    "Swish": _steps(_swish),
    "Where": _where,
    "Xor": _xor,
}
