"""How each standard elementwise operator is written in formula bytecode: one row per operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opforge.expr import Node, ProgramBuilder, ValueType

__all__ = ["ORDERED", "ROWS", "VALUE_TYPES", "Row"]

Attributes = Mapping[str, Any]
Emit = Callable[[ProgramBuilder, Sequence[Node], Attributes], Node]


ORDERED = frozenset({"Max", "Min", "Clip", "Relu"})
"""Operators of kind "float" that are written for integers too."""

VALUE_TYPES: dict[int, ValueType] = {
    **dict.fromkeys((1, 10, 11, 16), ValueType.T),
    2: ValueType.U8,
    3: ValueType.I8,
    6: ValueType.I32,
    7: ValueType.I64,
    9: ValueType.BOOL,
}
"""ONNX dtype number -> type of a bytecode value."""


@dataclass(frozen=True)
class Row:
    """An operator in bytecode.

    Attributes:
        kind: what the operands are: "float", "compare" (any one type, gives bool), "test" (float, gives bool),
            "logic" (bool), "select" (bool, then any one type), "cast".
        emit: appends the instructions; absent optional inputs arrive as None.
    """

    kind: str
    emit: Emit


def _op(name: str) -> Emit:
    return lambda b, x, a: b.op(name, *x)


def _chain(name: str) -> Emit:
    def emit(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
        result = x[0]
        for value in x[1:]:
            result = b.op(name, result, value)
        return result

    return emit


def _extreme(name: str, compare: str) -> Emit:
    """Minimum or maximum; of integers by comparison, since the instructions are for floating types."""

    def emit(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
        result = x[0]
        for value in x[1:]:
            if result.type.is_float:
                result = b.op(name, result, value)
            else:
                result = b.op("select", b.op(compare, value, result), value, result)
        return result

    return emit


_maximum, _minimum = _extreme("max", "gt"), _extreme("min", "lt")


def _relu(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    if x[0].type.is_float:
        return b.op("relu", x[0])
    return _maximum(b, [x[0], b.constant(0.0, x[0].type)], a)


def _mod(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    return b.op("fmod" if a.get("fmod", 0) else "mod", *x)


def _mean(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    total = _chain("add")(b, x, a)
    return b.op("div", total, b.constant(float(len(x))))


def _select_negative(b: ProgramBuilder, x: Node, negative: Node, positive: Node) -> Node:
    return b.op("select", b.op("lt", x, b.constant(0.0)), negative, positive)


def _leaky_relu(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    return _select_negative(b, x[0], b.op("mul", x[0], b.constant(a.get("alpha", float(np.float32(0.01))))), x[0])


def _prelu(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    return _select_negative(b, x[0], b.op("mul", x[0], x[1]), x[0])


def _elu(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    grown = b.op("mul", b.op("expm1", x[0]), b.constant(a.get("alpha", 1.0)))
    return _select_negative(b, x[0], grown, x[0])


def _selu(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    alpha = a.get("alpha", float(np.float32(1.67326319217681884765625)))
    gamma = a.get("gamma", float(np.float32(1.05070102214813232421875)))
    grown = b.op("mul", b.op("expm1", x[0]), b.constant(alpha))
    return b.op("mul", _select_negative(b, x[0], grown, x[0]), b.constant(gamma))


def _celu(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    alpha = b.constant(a.get("alpha", 1.0))
    grown = b.op("mul", b.op("expm1", b.op("div", x[0], alpha)), alpha)
    return _select_negative(b, x[0], grown, x[0])


def _ramp(b: ProgramBuilder, x: Node, alpha: float, beta: float) -> Node:
    line = b.op("add", b.op("mul", x, b.constant(alpha)), b.constant(beta))
    return b.op("clip", line, b.constant(0.0), b.constant(1.0))


def _hard_sigmoid(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    return _ramp(b, x[0], a.get("alpha", float(np.float32(0.2))), a.get("beta", 0.5))


def _hard_swish(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    return b.op("mul", x[0], _ramp(b, x[0], 1 / 6, 0.5))


def _clip(b: ProgramBuilder, x: Sequence[Node | None], a: Attributes) -> Node:
    value, low, high = (*x, None, None)[:3]
    assert value is not None
    if low is not None and high is not None and value.type.is_float:
        return b.op("clip", value, low, high)
    if low is not None:
        value = _maximum(b, [value, low], a)
    return value if high is None else _minimum(b, [value, high], a)


def _softsign(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    return b.op("div", x[0], b.op("add", b.op("abs", x[0]), b.constant(1.0)))


def _mish(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    return b.op("mul", x[0], b.op("tanh", b.op("softplus", x[0])))


def _gelu(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    if a.get("approximate", "none") == "tanh":  # 0.5*(1+tanh(u)) as sigmoid(2u), which keeps the tail
        square = b.op("square", x[0])
        bracket = b.op("add", b.op("mul", square, b.constant(0.044715)), b.constant(1.0))
        scaled = b.op("mul", b.op("mul", x[0], b.constant(2 * math.sqrt(2 / math.pi))), bracket)
        return b.op("mul", x[0], b.op("sigmoid", scaled))
    half = b.op("mul", x[0], b.constant(0.5))
    return b.op("mul", half, b.op("add", b.op("erf", b.op("mul", x[0], b.constant(math.sqrt(0.5)))), b.constant(1.0)))


def _swish(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    alpha = a.get("alpha", 1.0)
    inner = x[0] if alpha == 1.0 else b.op("mul", x[0], b.constant(alpha))
    return b.op("mul", x[0], b.op("sigmoid", inner))


def _thresholded_relu(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    above = b.op("gt", x[0], b.constant(a.get("alpha", 1.0)))
    return b.op("select", above, x[0], b.constant(0.0))


def _shrink(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    lambd, bias = a.get("lambd", 0.5), a.get("bias", 0.0)
    below = b.op("select", b.op("gt", x[0], b.constant(lambd)), b.op("sub", x[0], b.constant(bias)), b.constant(0.0))
    return b.op("select", b.op("lt", x[0], b.constant(-lambd)), b.op("add", x[0], b.constant(bias)), below)


def _pow(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    exponent = x[1].value if x[1].op == "constant" else None
    if exponent == 1.0:
        return x[0]
    if exponent == 2.0:
        return b.op("square", x[0])
    if exponent == 3.0:
        return b.op("mul", b.op("square", x[0]), x[0])
    if exponent == 0.5:
        return b.op("sqrt", x[0])
    return b.op("pow", x[0], x[1])


def _is_inf(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    negative, positive = a.get("detect_negative", 1), a.get("detect_positive", 1)
    if negative and positive:
        return b.op("isinf", x[0])
    if negative or positive:
        return b.op("eq", x[0], b.constant(math.inf if positive else -math.inf))
    return b.op("lt", x[0], b.constant(-math.inf))


def _cast(b: ProgramBuilder, x: Sequence[Node], a: Attributes) -> Node:
    target = VALUE_TYPES[int(a["to"])]
    if x[0].type is target:
        return x[0]
    if target is ValueType.BOOL:
        return b.op("ne", x[0], b.constant(0.0, x[0].type))
    return b.op("cast", x[0], type=target)


ROWS: dict[str, Row] = {
    **{
        name: Row("float", _op(instruction))
        for name, instruction in {
            "Abs": "abs",
            "Acos": "acos",
            "Acosh": "acosh",
            "Add": "add",
            "Asin": "asin",
            "Asinh": "asinh",
            "Atan": "atan",
            "Atanh": "atanh",
            "Ceil": "ceil",
            "Cos": "cos",
            "Cosh": "cosh",
            "Div": "div",
            "Erf": "erf",
            "Exp": "exp",
            "Floor": "floor",
            "Log": "log",
            "Mul": "mul",
            "Neg": "neg",
            "Reciprocal": "reciprocal",
            "Round": "round",
            "Sigmoid": "sigmoid",
            "Sign": "sign",
            "Sin": "sin",
            "Sinh": "sinh",
            "Softplus": "softplus",
            "Sqrt": "sqrt",
            "Sub": "sub",
            "Tan": "tan",
            "Tanh": "tanh",
        }.items()
    },
    "Max": Row("float", _maximum),
    "Min": Row("float", _minimum),
    "Mod": Row("float", _mod),
    "Relu": Row("float", _relu),
    "Sum": Row("float", _chain("add")),
    "Mean": Row("float", _mean),
    "Pow": Row("float", _pow),
    "LeakyRelu": Row("float", _leaky_relu),
    "PRelu": Row("float", _prelu),
    "Elu": Row("float", _elu),
    "Selu": Row("float", _selu),
    "Celu": Row("float", _celu),
    "HardSigmoid": Row("float", _hard_sigmoid),
    "HardSwish": Row("float", _hard_swish),
    "Clip": Row("float", _clip),
    "Softsign": Row("float", _softsign),
    "Mish": Row("float", _mish),
    "Gelu": Row("float", _gelu),
    "Swish": Row("float", _swish),
    "ThresholdedRelu": Row("float", _thresholded_relu),
    "Shrink": Row("float", _shrink),
    "Equal": Row("compare", _op("eq")),
    "Greater": Row("compare", _op("gt")),
    "GreaterOrEqual": Row("compare", _op("ge")),
    "Less": Row("compare", _op("lt")),
    "LessOrEqual": Row("compare", _op("le")),
    "IsNaN": Row("test", _op("isnan")),
    "IsInf": Row("test", _is_inf),
    "And": Row("logic", _op("logical_and")),
    "Or": Row("logic", _op("logical_or")),
    "Xor": Row("logic", _op("logical_xor")),
    "Not": Row("logic", _op("logical_not")),
    "Where": Row("select", _op("select")),
    "Cast": Row("cast", _cast),
}
