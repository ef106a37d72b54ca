"""Runs formula bytecode with NumPy in float64, for checking the compiler without the native interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from opforge.expr import Program, ValueType

_erf = np.vectorize(math.erf, otypes=[np.float64])
_NUMPY = {
    ValueType.T: np.float64,
    ValueType.F32: np.float64,
    ValueType.F64: np.float64,
    ValueType.BOOL: np.bool_,
    ValueType.I32: np.int32,
    ValueType.I64: np.int64,
    ValueType.U8: np.uint8,
    ValueType.I8: np.int8,
}

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "mod": np.mod,
    "fmod": np.fmod,
    "fma": lambda a, b, c: a * b + c,
    "fnma": lambda a, b, c: c - a * b,
    "clip": lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "reciprocal": lambda x: 1 / x,
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: np.where(x >= 0, 1.0, np.exp(-np.abs(x))) / (1 + np.exp(-np.abs(x))),
    "softplus": lambda x: np.logaddexp(x, 0),
    "erf": _erf,
    "erfc": lambda x: 1 - _erf(x),
    "round": np.rint,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "select": np.where,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    **{
        name: getattr(np, name)
        for name in "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh floor ceil trunc".split()
    },
}


ROUNDINGS = {"round_f16": np.float16, "round_bf16": ml_dtypes.bfloat16}


def run(blob: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Evaluate; ``round_half`` rounds to the type of the first half input."""
    program = Program.decode(blob)
    assert len(inputs) == len(program.inputs)
    halves = [a.dtype for a in inputs if a.dtype.itemsize == 2 and a.dtype.kind in "fV"]
    values: list[Any] = [a.astype(_NUMPY[t]) for a, t in zip(inputs, program.inputs, strict=True)]
    assert not program.attributes
    values += [np.array(c.value).astype(_NUMPY[c.type]) for c in program.constants]
    with np.errstate(all="ignore"):
        for i in program.instructions:
            args = [values[k] for k in i.args]
            if i.op == "cast":
                values.append(_cast(args[0], _NUMPY[i.type]))
            elif i.op == "round_half":
                values.append(args[0].astype(halves[0]).astype(np.float64) if halves else args[0])
            elif i.op in ROUNDINGS:
                values.append(args[0].astype(ROUNDINGS[i.op]).astype(args[0].dtype))
            else:
                values.append(OPERATIONS[i.op](*args))
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    return [np.broadcast_to(values[o.value], shape) for o in program.outputs]


def _cast(x: np.ndarray, dtype: Any) -> np.ndarray:
    if np.dtype(dtype).kind in "iu" and x.dtype.kind == "f":
        info = np.iinfo(dtype)
        return np.clip(np.nan_to_num(np.trunc(x), nan=0), info.min, info.max).astype(dtype)
    return x.astype(dtype)
