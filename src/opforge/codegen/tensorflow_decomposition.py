"""Formulas as TensorFlow code: what XLA can compile, and what runs where there is no kernel of ours.

The decomposition runs the formula's program on tensors, one row of a table per instruction. Half types are computed
in float32 and rounded once, as the kernels do. Gradients are the formula's own, not those of the rows, so that kinks
get the derivative that the operator declares.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from opforge.codegen._evaluate import evaluate
from opforge.expr.nodes import ValueType
from opforge.expr.program import Program

if TYPE_CHECKING:
    from opforge.expr.formulas import Formula

__all__ = ["decomposition", "functions"]


@functools.cache
def functions() -> Mapping[str, Callable[..., Any]]:
    """Give the TensorFlow function of each instruction, except casts."""
    import tensorflow as tf

    def sign(x: Any) -> Any:  # noqa: ANN401
        ones = tf.ones_like(x)
        return tf.where((x == 0) | tf.math.is_nan(x), x, tf.where(x < 0, -ones, ones))

    def cbrt(x: Any) -> Any:  # noqa: ANN401
        return sign(x) * tf.pow(tf.abs(x), tf.cast(1.0 / 3.0, x.dtype))

    def softplus(x: Any) -> Any:  # noqa: ANN401
        return tf.maximum(x, tf.zeros_like(x)) + tf.math.log1p(tf.exp(-tf.abs(x)))

    return {
        "add": tf.add,
        "sub": tf.subtract,
        "mul": tf.multiply,
        "div": tf.divide,
        "min": tf.minimum,
        "max": tf.maximum,
        "pow": tf.pow,
        "mod": tf.math.floormod,
        "atan2": tf.math.atan2,
        "fmod": lambda x, y: tf.raw_ops.TruncateMod(x=x, y=y),
        "fma": lambda a, b, c: a * b + c,
        "fnma": lambda a, b, c: c - a * b,
        "clip": lambda x, low, high: tf.minimum(tf.maximum(x, low), high),
        "neg": tf.negative,
        "abs": tf.abs,
        "sign": sign,
        "sqrt": tf.sqrt,
        "rsqrt": tf.math.rsqrt,
        "cbrt": cbrt,
        "reciprocal": lambda x: tf.ones_like(x) / x,
        "square": tf.square,
        "relu": lambda x: tf.maximum(x, tf.zeros_like(x)),
        "exp": tf.exp,
        "exp2": lambda x: tf.pow(tf.cast(2.0, x.dtype), x),
        "expm1": tf.math.expm1,
        "log": tf.math.log,
        "log2": lambda x: tf.math.log(x) * tf.cast(1.0 / math.log(2.0), x.dtype),
        "log10": lambda x: tf.math.log(x) * tf.cast(1.0 / math.log(10.0), x.dtype),
        "log1p": tf.math.log1p,
        "sin": tf.sin,
        "cos": tf.cos,
        "tan": tf.tan,
        "asin": tf.asin,
        "acos": tf.acos,
        "atan": tf.atan,
        "sinh": tf.sinh,
        "cosh": tf.cosh,
        "tanh": tf.tanh,
        "asinh": tf.asinh,
        "acosh": tf.acosh,
        "atanh": tf.atanh,
        "erf": tf.math.erf,
        "erfc": tf.math.erfc,
        "sigmoid": tf.sigmoid,
        "softplus": softplus,
        "floor": tf.floor,
        "ceil": tf.math.ceil,
        "round": tf.round,
        "trunc": lambda x: tf.where(x < 0, tf.math.ceil(x), tf.floor(x)),
        "lt": tf.less,
        "le": tf.less_equal,
        "eq": tf.equal,
        "ne": tf.not_equal,
        "gt": tf.greater,
        "ge": tf.greater_equal,
        "isnan": tf.math.is_nan,
        "isinf": tf.math.is_inf,
        "logical_and": tf.logical_and,
        "logical_or": tf.logical_or,
        "logical_xor": tf.math.logical_xor,
        "logical_not": tf.logical_not,
        "select": tf.where,
    }


def decomposition(formula: Formula) -> Callable[..., Any]:
    """Return a function of ``(*tensors, **attributes)`` that computes the formula with TensorFlow's own operators.

    It gives one tensor, or a tuple where the formula has several outputs, of the inputs' dtype. Its gradient, of any
    order, is the formula's.
    """
    names = [attribute.name for attribute in formula.attributes]
    defaults = {attribute.name: attribute.default for attribute in formula.attributes}

    def decomposed(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        results = _differentiable(formula, tuple(attributes.get(name, defaults[name]) for name in names))(*tensors)
        return results[0] if len(results) == 1 else tuple(results)

    decomposed.__name__ = f"{formula.name}_decomposed"
    return decomposed


def _differentiable(formula: Formula, attributes: tuple[Any, ...]) -> Callable[..., Sequence[Any]]:
    import tensorflow as tf

    def function(*tensors: Any) -> tuple[Sequence[Any], Callable[..., Any]]:  # noqa: ANN401
        def gradient(*gradients: Any) -> Sequence[Any]:  # noqa: ANN401
            # The derivative takes a gradient of each output; those of outputs that are no floats count nothing.
            given = [g if g is not None and g.dtype.is_floating else tf.zeros((), tensors[0].dtype) for g in gradients]
            return _differentiable(formula.gradient(), attributes)(*given, *tensors)

        return _run(formula.program(), tensors, attributes), gradient

    return cast("Callable[..., Sequence[Any]]", tf.custom_gradient(function))


def _run(program: Program, tensors: Sequence[Any], attributes: Sequence[Any]) -> list[Any]:
    import tensorflow as tf

    dtype = tensors[0].dtype
    compute = tf.float64 if dtype == tf.float64 else tf.float32
    types: dict[ValueType, Any] = {
        ValueType.T: compute,
        ValueType.BOOL: tf.bool,
        ValueType.I32: tf.int32,
        ValueType.I64: tf.int64,
        ValueType.F32: tf.float32,
        ValueType.F64: tf.float64,
        ValueType.U8: tf.uint8,
        ValueType.I8: tf.int8,
    }
    shapes = [tf.shape(tensor) for tensor in tensors]
    shape = functools.reduce(tf.broadcast_dynamic_shape, shapes)
    static = functools.reduce(tf.broadcast_static_shape, [tensor.shape for tensor in tensors])
    values = evaluate(
        program,
        [tf.cast(tensor, compute) for tensor in tensors],
        attributes,
        functions(),
        constant=lambda value, kind: tf.constant(value, types[kind]),
        cast=lambda x, kind: _cast(x, kind, types),
        round_half=lambda x: tf.cast(tf.cast(x, dtype), x.dtype),
    )
    results = []
    for output in program.outputs:
        whole = tf.ensure_shape(tf.broadcast_to(values[output.value], shape), static)
        if output.sum_to is not None:
            whole = _sum_to(whole, tensors[output.sum_to].shape, shapes[output.sum_to], shape)
        results.append(tf.cast(whole, dtype if output.type is ValueType.T else types[output.type]))
    return results


def _sum_to(x: Any, static: Any, shape: Any, whole: Any) -> Any:  # noqa: ANN401
    """Sum over what broadcasting has added."""
    import tensorflow as tf

    _, axes = tf.raw_ops.BroadcastGradientArgs(s0=whole, s1=shape)
    return tf.ensure_shape(tf.reshape(tf.reduce_sum(x, axes, keepdims=True), shape), static)


def _cast(x: Any, kind: ValueType, types: Mapping[ValueType, Any]) -> Any:  # noqa: ANN401
    """Float to integer truncates and saturates, NaN gives 0; anything but 0 is true."""
    import tensorflow as tf

    target = types[kind]
    if kind is ValueType.BOOL:
        return x != tf.zeros_like(x) if x.dtype != tf.bool else x
    if kind.is_float or not x.dtype.is_floating:
        return tf.cast(x, target)
    whole = functions()["trunc"](tf.where(tf.math.is_nan(x), tf.zeros_like(x), x))
    above, below = whole >= float(target.max), whole < float(target.min)
    inside = tf.where(above | below, tf.zeros_like(whole), whole)
    limits = tf.where(above, tf.constant(target.max, target), tf.constant(target.min, target))
    return tf.where(above | below, limits, tf.cast(inside, target))
