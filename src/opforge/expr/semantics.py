"""What each instruction means in float64: one NumPy function per row, for folding constants and for the reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from opforge.expr.nodes import ValueType

__all__ = ["NUMPY", "cast", "evaluate"]

Array = Any  # np.ndarray or NumPy scalar of any dtype


def _python(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of math on arrays: NumPy has none of its own for it."""
    return np.vectorize(function, otypes=[np.float64])


def _sign(x: Array) -> Array:
    return np.where((x == 0) | np.isnan(x), x, np.copysign(1.0, x))


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def _clip(x: Array, low: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


NUMPY: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "mod": np.mod,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "fma": lambda a, b, c: a * b + c,
    "fnma": lambda a, b, c: c - a * b,
    "clip": _clip,
    "neg": np.negative,
    "abs": np.abs,
    "sign": _sign,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "cbrt": np.cbrt,
    "reciprocal": lambda x: 1.0 / x,
    "square": np.square,
    "relu": _relu,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _python(math.erf),
    "erfc": _python(math.erfc),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "select": np.where,
    "round_half": lambda x: x,  # float64 has nothing to round to
    "round_f16": lambda x: x,
    "round_bf16": lambda x: x,
}

_INTEGERS: dict[ValueType, Any] = {
    ValueType.I32: np.int32,
    ValueType.I64: np.int64,
    ValueType.U8: np.uint8,
    ValueType.I8: np.int8,
}


def cast(x: Array, to: ValueType) -> Array:
    """A value in another type, by the rule of docs/design/numbers.md, "Conversions"."""
    x = np.asarray(x)
    if to is ValueType.BOOL:
        return x != 0
    if to is ValueType.F32:
        with np.errstate(over="ignore"):
            return x.astype(np.float32).astype(np.float64)
    if to.is_float:
        return x.astype(np.float64)
    integer = _INTEGERS[to]
    if x.dtype.kind != "f":
        return x.astype(integer)  # the low bits
    limits = np.iinfo(integer)
    whole = np.trunc(np.where(np.isnan(x), 0.0, x))
    # 2**63 - 1 is no float64, so the upper end is set by comparison, not by clipping.
    inside = np.where((whole >= float(limits.min)) & (whole < float(limits.max) + 1.0), whole, 0.0).astype(integer)
    return np.where(whole >= float(limits.max), limits.max, np.where(whole < limits.min, limits.min, inside)).astype(
        integer
    )


def evaluate(name: str, args: list[Array], type_: ValueType) -> Array:
    """The result of one instruction."""
    with np.errstate(all="ignore"):
        if name == "cast":
            return cast(args[0], type_)
        result = NUMPY[name](*(np.asarray(a) for a in args))
        if type_ is ValueType.F32:
            return np.asarray(result).astype(np.float32).astype(np.float64)
        return result
