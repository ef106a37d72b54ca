"""What each instruction means to mpmath; imported only where values of many digits are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp

from opforge.expr.nodes import Node, ValueType

__all__ = ["MPMATH", "evaluate"]

Number = Any  # mpmath.mpf or bool


def _round_even(x: Number) -> Number:
    low = mp.floor(x)
    rest = x - low
    return low if rest < 0.5 or (rest == 0.5 and int(low) % 2 == 0) else low + 1


def _trunc(x: Number) -> Number:
    return mp.floor(x) if x >= 0 else mp.ceil(x)


def _cbrt(x: Number) -> Number:
    return mp.sign(x) * mp.cbrt(abs(x))


MPMATH: dict[str, Callable[..., Number]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "min": min,
    "max": max,
    "pow": lambda a, b: mp.mpf(1) if b == 0 else mp.power(a, b),
    "mod": lambda a, b: a - b * mp.floor(a / b),
    "atan2": lambda a, b: mp.atan2(a, b),
    "fmod": lambda a, b: a - b * _trunc(a / b),
    "fma": lambda a, b, c: a * b + c,
    "fnma": lambda a, b, c: c - a * b,
    "clip": lambda x, low, high: min(max(x, low), high),
    "neg": lambda x: -x,
    "abs": abs,
    "sign": mp.sign,
    "sqrt": mp.sqrt,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "cbrt": _cbrt,
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "relu": lambda x: max(x, mp.mpf(0)),
    "exp": mp.exp,
    "exp2": lambda x: mp.power(2, x),
    "expm1": mp.expm1,
    "log": mp.log,
    "log2": lambda x: mp.log(x, 2),
    "log10": mp.log10,
    "log1p": mp.log1p,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": mp.atanh,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "floor": mp.floor,
    "ceil": mp.ceil,
    "round": _round_even,
    "trunc": _trunc,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "isnan": mp.isnan,
    "isinf": mp.isinf,
    "logical_and": lambda a, b: a and b,
    "logical_or": lambda a, b: a or b,
    "logical_xor": lambda a, b: a != b,
    "logical_not": lambda a: not a,
    "select": lambda c, a, b: a if c else b,
    "round_half": lambda x: x,
    "round_f16": lambda x: x,
    "round_bf16": lambda x: x,
}


_INTEGERS = {ValueType.I32: (32, True), ValueType.I64: (64, True), ValueType.U8: (8, False), ValueType.I8: (8, True)}


def evaluate(node: Node, inputs: Sequence[Number], attributes: Sequence[Number], digits: int) -> Number:
    """The value of an expression at scalars. Sides that a select does not choose are not computed."""
    with mp.workdps(max(digits, mp.mp.dps)):
        leaves = {"input": [mp.mpf(v) for v in inputs], "attribute": [mp.mpf(v) for v in attributes]}
        return _value(node, leaves, {})


def _value(node: Node, leaves: dict[str, list[Number]], values: dict[int, Number]) -> Number:
    if id(node) in values:
        return values[id(node)]
    if node.op in leaves:
        value = leaves[node.op][node.index]
    elif node.op == "constant":
        value = bool(node.value) if node.type is ValueType.BOOL else mp.mpf(node.value)
    elif node.op == "select":
        value = _value(node.args[1] if _value(node.args[0], leaves, values) else node.args[2], leaves, values)
    else:
        args = [_value(a, leaves, values) for a in node.args]
        value = _cast(args[0], node.args[0].type, node.type) if node.op == "cast" else MPMATH[node.op](*args)
    values[id(node)] = value
    return value


def _cast(x: Number, source: ValueType, to: ValueType) -> Number:
    if to is ValueType.BOOL:
        return x != 0
    number = mp.mpf(int(x)) if isinstance(x, bool) else x
    if to.is_float:
        return number
    bits, signed = _INTEGERS[to]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if source.is_float:
        return mp.mpf(0) if mp.isnan(number) else min(max(_trunc(number), mp.mpf(low)), mp.mpf(high))
    return mp.mpf((int(number) - low) % 2**bits + low)  # the low bits
