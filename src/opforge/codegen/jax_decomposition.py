"""Formulas as JAX code: what XLA can fuse with the operator's neighbours, on any device, in forward mode too.

The decomposition runs the formula's program on arrays or tracers, one row of a table per instruction. Half types are
computed in float32 and rounded once, as the kernels do. Derivatives are the formula's own, not those of the rows, so
that kinks get the derivative that the operator declares.
"""

from __future__ import annotations

import functools
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
    """Give the JAX function of each instruction, except casts."""
    import jax
    import jax.numpy as jnp

    def sign(x: Any) -> Any:  # noqa: ANN401
        return jnp.where((x == 0) | jnp.isnan(x), x, jnp.copysign(jnp.ones_like(x), x))

    def softplus(x: Any) -> Any:  # noqa: ANN401
        return jnp.maximum(x, jnp.zeros_like(x)) + jnp.log1p(jnp.exp(-jnp.abs(x)))

    return {
        "add": jnp.add,
        "sub": jnp.subtract,
        "mul": jnp.multiply,
        "div": jnp.divide,
        "min": jnp.minimum,
        "max": jnp.maximum,
        "pow": jnp.power,
        "mod": jnp.remainder,
        "atan2": jnp.arctan2,
        "fmod": jnp.fmod,
        "fma": lambda a, b, c: a * b + c,
        "fnma": lambda a, b, c: c - a * b,
        "clip": lambda x, low, high: jnp.minimum(jnp.maximum(x, low), high),
        "neg": jnp.negative,
        "abs": jnp.abs,
        "sign": sign,
        "sqrt": jnp.sqrt,
        "rsqrt": jax.lax.rsqrt,
        "cbrt": jnp.cbrt,
        "reciprocal": jnp.reciprocal,
        "square": jnp.square,
        "relu": lambda x: jnp.maximum(x, jnp.zeros_like(x)),
        "exp": jnp.exp,
        "exp2": jnp.exp2,
        "expm1": jnp.expm1,
        "log": jnp.log,
        "log2": jnp.log2,
        "log10": jnp.log10,
        "log1p": jnp.log1p,
        "sin": jnp.sin,
        "cos": jnp.cos,
        "tan": jnp.tan,
        "asin": jnp.arcsin,
        "acos": jnp.arccos,
        "atan": jnp.arctan,
        "sinh": jnp.sinh,
        "cosh": jnp.cosh,
        "tanh": jnp.tanh,
        "asinh": jnp.arcsinh,
        "acosh": jnp.arccosh,
        "atanh": jnp.arctanh,
        "erf": jax.lax.erf,
        "erfc": jax.lax.erfc,
        "sigmoid": jax.lax.logistic,
        "softplus": softplus,
        "floor": jnp.floor,
        "ceil": jnp.ceil,
        "round": jnp.round,
        "trunc": jnp.trunc,
        "lt": jnp.less,
        "le": jnp.less_equal,
        "eq": jnp.equal,
        "ne": jnp.not_equal,
        "gt": jnp.greater,
        "ge": jnp.greater_equal,
        "isnan": jnp.isnan,
        "isinf": jnp.isinf,
        "logical_and": jnp.logical_and,
        "logical_or": jnp.logical_or,
        "logical_xor": jnp.logical_xor,
        "logical_not": jnp.logical_not,
        "select": jnp.where,
    }


def decomposition(formula: Formula) -> Callable[..., Any]:
    """Return a function of ``(*arrays, **attributes)`` that computes the formula with JAX's own operators.

    It gives one array, or a tuple where the formula has several outputs, of the inputs' dtype. It can be
    differentiated in both modes, to any order, batched and compiled for any device.
    """
    names = [attribute.name for attribute in formula.attributes]
    defaults = {attribute.name: attribute.default for attribute in formula.attributes}

    def decomposed(*arrays: Any, **attributes: Any) -> Any:  # noqa: ANN401
        values = tuple(attributes.get(name, defaults[name]) for name in names)
        wholes = _broadcast(formula, values)(*arrays)
        results = [
            whole if output.sum_to is None else _sum_to(whole, arrays[output.sum_to].shape)
            for whole, output in zip(wholes, formula.program().outputs, strict=True)
        ]
        return results[0] if len(results) == 1 else tuple(results)

    decomposed.__name__ = f"{formula.name}_decomposed"
    return decomposed


@functools.lru_cache(maxsize=1024)
def _broadcast(formula: Formula, attributes: tuple[Any, ...]) -> Callable[..., tuple[Any, ...]]:
    """The formula with all outputs in the broadcast shape (sums to an input's shape left out)."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    program = formula.program()

    def run(*arrays: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return _run(program, arrays, attributes)

    function = jax.custom_jvp(run)

    def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        outputs = function(*primals)
        derivative = _broadcast(formula.gradient(), attributes)
        results: list[Any] = []
        for k, output in enumerate(outputs):
            if program.outputs[k].type is not ValueType.T:
                results.append(np.zeros(output.shape, jax.dtypes.float0))
                continue
            seeds = [jnp.full(output.shape, 1.0 if j == k else 0.0, primals[0].dtype) for j in range(len(outputs))]
            partials = derivative(*seeds, *primals)
            results.append(functools.reduce(jnp.add, (p * t for p, t in zip(partials, tangents, strict=True))))
        return outputs, tuple(results)

    function.defjvp(jvp)
    return cast("Callable[..., tuple[Any, ...]]", function)


def _sum_to(x: Any, shape: Sequence[int]) -> Any:  # noqa: ANN401
    """Sum over what broadcasting has added; half types are added in float32."""
    import jax.numpy as jnp

    extra = x.ndim - len(shape)
    axes = (*range(extra), *(extra + k for k, size in enumerate(shape) if size == 1 and x.shape[extra + k] != 1))
    if not axes:
        return x
    wide = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    return x.astype(wide).sum(axes, keepdims=True).reshape(shape).astype(x.dtype)


def _run(program: Program, arrays: Sequence[Any], attributes: Sequence[Any]) -> tuple[Any, ...]:
    import jax.numpy as jnp

    dtype = arrays[0].dtype
    compute = jnp.float64 if dtype == jnp.float64 else jnp.float32
    shape = jnp.broadcast_shapes(*(array.shape for array in arrays))
    types: dict[ValueType, Any] = {
        ValueType.T: compute,
        ValueType.BOOL: jnp.bool_,
        ValueType.I32: jnp.int32,
        ValueType.I64: jnp.int64,
        ValueType.F32: jnp.float32,
        ValueType.F64: jnp.float64,
        ValueType.U8: jnp.uint8,
        ValueType.I8: jnp.int8,
    }
    values = evaluate(
        program,
        [array.astype(compute) for array in arrays],
        attributes,
        functions(),
        constant=lambda value, kind: jnp.asarray(value, types[kind]),
        cast=lambda x, kind: _cast(x, kind, types),
        round_half=lambda x: x.astype(dtype).astype(x.dtype),
    )
    return tuple(
        jnp.broadcast_to(values[output.value], shape).astype(
            dtype if output.type is ValueType.T else types[output.type]
        )
        for output in program.outputs
    )


def _cast(x: Any, kind: ValueType, types: Mapping[ValueType, Any]) -> Any:  # noqa: ANN401
    """Float to integer truncates and saturates, NaN gives 0; anything but 0 is true."""
    import jax.numpy as jnp

    target = types[kind]
    if kind is ValueType.BOOL:
        return x != 0
    if kind.is_float or not jnp.issubdtype(x.dtype, jnp.floating):
        return x.astype(target)
    limits = jnp.iinfo(target)
    whole = jnp.trunc(jnp.where(jnp.isnan(x), jnp.zeros_like(x), x))
    inside = jnp.where((whole >= limits.min) & (whole < float(limits.max) + 1.0), whole, jnp.zeros_like(whole))
    high, low = jnp.asarray(limits.max, target), jnp.asarray(limits.min, target)
    return jnp.where(whole >= float(limits.max), high, jnp.where(whole < limits.min, low, inside.astype(target)))
