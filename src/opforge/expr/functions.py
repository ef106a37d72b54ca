"""The elementwise functions of formulas, named as in NumPy.

Each takes traced tensors and numbers. On numbers alone it computes in float64 and gives a float or bool, so that
``of.sqrt(2 / of.pi)`` is a constant.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from opforge.errors import DtypeError
from opforge.expr.nodes import ValueType, op
from opforge.expr.semantics import cast as cast_array
from opforge.expr.semantics import evaluate
from opforge.expr.trace import Expr, apply, as_node, caller, is_number, unite

Value = Any  # Expr, or a number

pi: float = math.pi
e: float = math.e
inf: float = math.inf


def exp(x: Value) -> Value:
    """E to the power x."""
    return _call("exp", x)


def exp2(x: Value) -> Value:
    """2 to the power x."""
    return _call("exp2", x)


def expm1(x: Value) -> Value:
    """exp(x) - 1, accurate near 0."""
    return _call("expm1", x)


def log(x: Value) -> Value:
    """Natural logarithm."""
    return _call("log", x)


def log2(x: Value) -> Value:
    """Logarithm to base 2."""
    return _call("log2", x)


def log10(x: Value) -> Value:
    """Logarithm to base 10."""
    return _call("log10", x)


def log1p(x: Value) -> Value:
    """log(1 + x), accurate near 0."""
    return _call("log1p", x)


def sqrt(x: Value) -> Value:
    """Square root; NaN below 0."""
    return _call("sqrt", x)


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x)."""
    return _call("rsqrt", x)


def cbrt(x: Value) -> Value:
    """Cube root, also of negative numbers."""
    return _call("cbrt", x)


def square(x: Value) -> Value:
    """X * x."""
    return _call("square", x)


def reciprocal(x: Value) -> Value:
    """1 / x."""
    return _call("reciprocal", x)


def sin(x: Value) -> Value:
    """Sine of an angle in radians."""
    return _call("sin", x)


def cos(x: Value) -> Value:
    """Cosine of an angle in radians."""
    return _call("cos", x)


def tan(x: Value) -> Value:
    """Tangent of an angle in radians."""
    return _call("tan", x)


def asin(x: Value) -> Value:
    """Arc sine in radians; NaN outside [-1, 1]."""
    return _call("asin", x)


def acos(x: Value) -> Value:
    """Arc cosine in radians; NaN outside [-1, 1]."""
    return _call("acos", x)


def atan(x: Value) -> Value:
    """Arc tangent in radians."""
    return _call("atan", x)


def sinh(x: Value) -> Value:
    """Hyperbolic sine."""
    return _call("sinh", x)


def cosh(x: Value) -> Value:
    """Hyperbolic cosine."""
    return _call("cosh", x)


def tanh(x: Value) -> Value:
    """Hyperbolic tangent."""
    return _call("tanh", x)


def asinh(x: Value) -> Value:
    """Inverse hyperbolic sine."""
    return _call("asinh", x)


def acosh(x: Value) -> Value:
    """Inverse hyperbolic cosine; NaN below 1."""
    return _call("acosh", x)


def atanh(x: Value) -> Value:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""
    return _call("atanh", x)


def erf(x: Value) -> Value:
    """Error function."""
    return _call("erf", x)


def erfc(x: Value) -> Value:
    """1 - erf(x), accurate where it is small."""
    return _call("erfc", x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x)), without overflow."""
    return _call("sigmoid", x)


def softplus(x: Value) -> Value:
    """log(1 + exp(x)), without overflow."""
    return _call("softplus", x)


def relu(x: Value) -> Value:
    """X where it is positive, else 0; NaN stays NaN."""
    return _call("relu", x)


def abs(x: Value) -> Value:
    """Absolute value."""
    return _call("abs", x)


def sign(x: Value) -> Value:
    """-1, 0 or 1; NaN stays NaN."""
    return _call("sign", x)


def floor(x: Value) -> Value:
    """Largest integer not above x."""
    return _call("floor", x)


def ceil(x: Value) -> Value:
    """Smallest integer not below x."""
    return _call("ceil", x)


def round(x: Value) -> Value:
    """Nearest integer, ties to the even one."""
    return _call("round", x)


def trunc(x: Value) -> Value:
    """Integer part, towards 0."""
    return _call("trunc", x)


def isnan(x: Value) -> Value:
    """Whether x is NaN."""
    return _call("isnan", x)


def isinf(x: Value) -> Value:
    """Whether x is an infinity."""
    return _call("isinf", x)


def logical_not(x: Value) -> Value:
    """Whether a condition does not hold."""
    return _call("logical_not", x)


def pow(x: Value, y: Value) -> Value:
    """X to the power y."""
    return _call("pow", x, y)


def atan2(y: Value, x: Value) -> Value:
    """Angle of the point (x, y) in radians, in [-pi, pi]."""
    return _call("atan2", y, x)


def minimum(x: Value, y: Value) -> Value:
    """The smaller one; NaN where either is NaN."""
    return _call("min", x, y)


def maximum(x: Value, y: Value) -> Value:
    """The larger one; NaN where either is NaN."""
    return _call("max", x, y)


def mod(x: Value, y: Value) -> Value:
    """Remainder with the sign of y (Python's %)."""
    return _call("mod", x, y)


def fmod(x: Value, y: Value) -> Value:
    """Remainder with the sign of x (C's fmod)."""
    return _call("fmod", x, y)


def logical_and(x: Value, y: Value) -> Value:
    """Whether both conditions hold."""
    return _call("logical_and", x, y)


def logical_or(x: Value, y: Value) -> Value:
    """Whether either condition holds."""
    return _call("logical_or", x, y)


def logical_xor(x: Value, y: Value) -> Value:
    """Whether exactly one condition holds."""
    return _call("logical_xor", x, y)


def clip(x: Value, low: Value, high: Value) -> Value:
    """X limited to [low, high], as min(max(x, low), high); NaN stays NaN."""
    return _call("clip", x, low, high)


def where(condition: Value, x: Value, y: Value) -> Value:
    """X where the condition holds, else y. Its derivative takes nothing from the side that is not chosen."""
    if not any_traced(condition, x, y):
        return _call("select", condition, x, y)
    chosen = as_node(condition, ValueType.BOOL)
    if chosen.type is not ValueType.BOOL:
        raise DtypeError(
            "where needs a condition first",
            where=caller(),
            got=f"a value of type {chosen.type.text}",
            hint="compare: x > 0",
        )
    kinds = {v.node.type for v in (x, y) if isinstance(v, Expr)}
    if len(kinds) == 1 and builtins.all(isinstance(v, Expr) or isinstance(v, bool) for v in (x, y)):
        kind = kinds.pop()
        return Expr(op("select", chosen, as_node(x, kind), as_node(y, kind)))
    return Expr(op("select", chosen, *unite((x, y))))


def cast(x: Value, dtype: object) -> Value:
    """X as another type: "T" (the type computed in), f32, f64, i32, i64, u8, i8 or bool.

    Float to integer truncates and saturates, NaN gives 0; integers keep their low bits; anything but 0 is true.
    """
    name = dtype if isinstance(dtype, str) else str(getattr(dtype, "name", dtype))
    try:
        kind = ValueType.parse(name)
    except KeyError:
        raise DtypeError(
            "cannot cast to this type",
            where=caller(),
            expected=", ".join(t.text for t in ValueType),
            got=name,
            hint='"T" is the type that the operator computes in; half types have no arithmetic of their own',
        ) from None
    if not isinstance(x, Expr):
        return _plain(cast_array(_number("cast", x), kind))
    return x if x.node.type is kind else Expr(op("cast", x.node, type=kind))


def any_traced(*values: Value) -> bool:
    """Whether any of the values is traced."""
    return builtins.any(isinstance(v, Expr) for v in values)


def _call(name: str, *values: Value) -> Value:
    if any_traced(*values):
        return apply(name, *values)
    return _plain(evaluate(name, [_number(name, v) for v in values], ValueType.T))


def _number(name: str, value: Value) -> float | bool:
    if isinstance(value, bool | np.bool_):
        return builtins.bool(value)
    if is_number(value):
        return float(value)
    raise DtypeError(
        f"of.{name} takes the tensors of a formula that is traced, and numbers",
        where=caller(),
        got=f"{type(value).__module__}.{type(value).__qualname__}",
        hint='declare an operator: @of.formula("domain::Name"), and call that on tensors',
    )


def _plain(value: Value) -> float | bool | int:
    result: float | bool | int = np.asarray(value).item()
    return result


_ALIASES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "absolute": "abs", "fabs": "abs", "power": "pow", "float_power": "pow", "remainder": "mod",
    "rint": "round",
}  # fmt: skip
_SAME = (
    "exp exp2 expm1 log log2 log10 log1p sqrt cbrt square reciprocal sin cos tan sinh cosh tanh sign floor ceil trunc "
    "minimum maximum fmod isnan isinf logical_and logical_or logical_xor logical_not"
)
_OPERATORS = {
    "add": "__add__", "subtract": "__sub__", "multiply": "__mul__", "divide": "__truediv__", "negative": "__neg__",
    "floor_divide": "__floordiv__", "greater": "__gt__", "greater_equal": "__ge__", "less": "__lt__",
    "less_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__", "positive": "__pos__", "bitwise_and": "__and__",
    "bitwise_or": "__or__", "bitwise_xor": "__xor__", "invert": "__invert__",
}  # fmt: skip
UFUNCS: dict[str, str] = {**_ALIASES, **{name: name for name in _SAME.split()}, **_OPERATORS}
"""NumPy's ufunc -> our function, or the method of `Expr`."""
ARRAY_FUNCTIONS: dict[str, str] = {"where": "where", "clip": "clip", "round": "round"}
"""NumPy's other functions -> ours."""


def call_ufunc(name: str, *values: Value) -> Value:
    """What NumPy's ufunc of that name means on traced values."""
    ours = UFUNCS[name]
    if not ours.startswith("__"):
        return globals()[ours](*values)
    first, *rest = values
    kind = next(v.node.type for v in values if isinstance(v, Expr))
    traced = first if isinstance(first, Expr) else Expr(as_node(first, kind if kind.is_float else ValueType.T))
    return getattr(traced, ours)(*rest)


OPERATIONS: tuple[str, ...] = tuple(
    "abs acos acosh asin asinh atan atan2 atanh cast cbrt ceil clip cos cosh erf erfc exp exp2 expm1 floor fmod isinf "
    "isnan log log10 log1p log2 logical_and logical_not logical_or logical_xor maximum minimum mod pow reciprocal relu "
    "round rsqrt sigmoid sign sin sinh softplus sqrt square tan tanh trunc where".split()
)
"""Names of the public functions."""

__all__ = ["ARRAY_FUNCTIONS", "OPERATIONS", "UFUNCS", "Value", "call_ufunc", "e", "inf", "pi", *OPERATIONS]
