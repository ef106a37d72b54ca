"""Formulas as PyTorch code: what a compiler of PyTorch can fuse with the operator's neighbours.

The decomposition runs the formula's program, instruction by instruction, on tensors or on tracers of them: one row of
a table per instruction. Half types are computed in float32 and rounded once, as the kernels do. A fused
multiply-add is a product and a sum here, so results may differ from the kernels' in the last place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opforge.codegen._evaluate import evaluate
from opforge.expr.nodes import ValueType
from opforge.expr.program import Program

if TYPE_CHECKING:
    from opforge.expr.formulas import Formula

__all__ = ["decomposition", "functions"]


@functools.cache
def functions() -> Mapping[str, Callable[..., Any]]:
    """Give the PyTorch function of each instruction, except casts."""
    import torch

    def sign(x: Any) -> Any:  # noqa: ANN401
        return torch.where((x == 0) | torch.isnan(x), x, torch.copysign(torch.ones_like(x), x))

    def cbrt(x: Any) -> Any:  # noqa: ANN401
        return torch.copysign(torch.pow(torch.abs(x), 1.0 / 3.0), x)

    def softplus(x: Any) -> Any:  # noqa: ANN401
        return torch.maximum(x, torch.zeros_like(x)) + torch.log1p(torch.exp(-torch.abs(x)))

    return {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "min": torch.minimum,
        "max": torch.maximum,
        "pow": torch.pow,
        "mod": torch.remainder,
        "atan2": torch.atan2,
        "fmod": torch.fmod,
        "fma": lambda a, b, c: a * b + c,
        "fnma": lambda a, b, c: c - a * b,
        "clip": lambda x, low, high: torch.minimum(torch.maximum(x, low), high),
        "neg": torch.neg,
        "abs": torch.abs,
        "sign": sign,
        "sqrt": torch.sqrt,
        "rsqrt": torch.rsqrt,
        "cbrt": cbrt,
        "reciprocal": torch.reciprocal,
        "square": lambda x: x * x,
        "relu": torch.relu,
        "exp": torch.exp,
        "exp2": torch.exp2,
        "expm1": torch.expm1,
        "log": torch.log,
        "log2": torch.log2,
        "log10": torch.log10,
        "log1p": torch.log1p,
        "sin": torch.sin,
        "cos": torch.cos,
        "tan": torch.tan,
        "asin": torch.asin,
        "acos": torch.acos,
        "atan": torch.atan,
        "sinh": torch.sinh,
        "cosh": torch.cosh,
        "tanh": torch.tanh,
        "asinh": torch.asinh,
        "acosh": torch.acosh,
        "atanh": torch.atanh,
        "erf": torch.erf,
        "erfc": torch.erfc,
        "sigmoid": torch.sigmoid,
        "softplus": softplus,
        "floor": torch.floor,
        "ceil": torch.ceil,
        "round": torch.round,
        "trunc": torch.trunc,
        "lt": torch.lt,
        "le": torch.le,
        "eq": torch.eq,
        "ne": torch.ne,
        "gt": torch.gt,
        "ge": torch.ge,
        "isnan": torch.isnan,
        "isinf": torch.isinf,
        "logical_and": torch.logical_and,
        "logical_or": torch.logical_or,
        "logical_xor": torch.logical_xor,
        "logical_not": torch.logical_not,
        "select": torch.where,
    }


def decomposition(formula: Formula) -> Callable[..., Any]:
    """Return a function of ``(*tensors, **attributes)`` that computes the formula with PyTorch's own operators.

    It gives one tensor, or a tuple where the formula has several outputs, contiguous and of the inputs' dtype.
    """
    program = formula.program()
    names = [attribute.name for attribute in formula.attributes]
    defaults = {attribute.name: attribute.default for attribute in formula.attributes}

    def decomposed(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        values = [attributes.get(name, defaults[name]) for name in names]
        results = _run(program, tensors, values)
        return results[0] if len(results) == 1 else tuple(results)

    decomposed.__name__ = f"{formula.name}_decomposed"
    return decomposed


def _run(program: Program, tensors: Sequence[Any], attributes: Sequence[Any]) -> list[Any]:
    import torch

    dtype = tensors[0].dtype
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    broadcast_shapes: Any = torch.broadcast_shapes
    shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
    types: dict[ValueType, torch.dtype] = {
        ValueType.T: compute,
        ValueType.BOOL: torch.bool,
        ValueType.I32: torch.int32,
        ValueType.I64: torch.int64,
        ValueType.F32: torch.float32,
        ValueType.F64: torch.float64,
        ValueType.U8: torch.uint8,
        ValueType.I8: torch.int8,
    }

    def scalar(value: float, kind: ValueType) -> Any:  # noqa: ANN401
        return torch.full((), value, dtype=types[kind], device=tensors[0].device)

    values = evaluate(
        program,
        [tensor.to(compute) for tensor in tensors],
        attributes,
        functions(),
        constant=scalar,
        cast=lambda x, kind: _cast(x, kind, types),
        round_half=lambda x: x.to(dtype).to(x.dtype),
    )
    results: list[Any] = []
    for output in program.outputs:
        whole = torch.broadcast_to(values[output.value], shape)
        if output.sum_to is not None:
            whole = whole.sum_to_size(tensors[output.sum_to].shape)
        target = dtype if output.type is ValueType.T else types[output.type]
        # A value that is an input itself must not come out as an alias of it.
        result = whole.to(target)
        alias = output.value < len(tensors) and target == compute
        results.append(result.clone(memory_format=torch.contiguous_format) if alias else result.contiguous())
    return results


def _cast(x: Any, kind: ValueType, types: Mapping[ValueType, Any]) -> Any:  # noqa: ANN401
    """Float to integer truncates and saturates, NaN gives 0; anything but 0 is true."""
    import torch

    target = types[kind]
    if kind is ValueType.BOOL:
        return x != 0
    if kind.is_float or not x.is_floating_point():
        return x.to(target)
    limits = torch.iinfo(target)
    whole = torch.trunc(torch.where(torch.isnan(x), torch.zeros_like(x), x))
    inside = torch.where((whole >= limits.min) & (whole < float(limits.max) + 1.0), whole, torch.zeros_like(whole))
    high = torch.full((), limits.max, dtype=target, device=x.device)
    low = torch.full((), limits.min, dtype=target, device=x.device)
    return torch.where(whole >= float(limits.max), high, torch.where(whole < limits.min, low, inside.to(target)))
