"""Gradient programs on NumPy arrays, step by step: what a host's backward pass does, in the open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opforge.errors import UnsupportedError
from opforge.frameworks._programs import flattened, grouped, spread
from opforge.schema import ABSENT, DType, Operator, registry
from opforge.schema.gradient import ForwardAttribute, GradientProgram, Operand

__all__ = ["Call", "executed", "output_list"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Call:
    """One step: the operator that it called, on which tensors (flat) and attributes."""

    operator: Operator
    inputs: list[Array | None]
    attributes: dict[str, Any]


def output_list(result: Any) -> list[Array]:  # noqa: ANN401 - one array, or a tuple of them
    """Return what an operator gave as a list."""
    return [np.asarray(v) for v in result] if isinstance(result, tuple | list) else [np.asarray(result)]


def executed(
    operator: Operator,
    inputs: Sequence[Array | None],
    outputs: Sequence[Array],
    grads: Sequence[Array],
    attributes: Mapping[str, Any],
    call: Callable[[Operator, Sequence[Array | None], Mapping[str, Any]], Sequence[Array]] | None = None,
) -> tuple[list[Array | None], list[Call]]:
    """Run the gradient program.

    Args:
        operator: whose program.
        inputs: flat, the tensors of a variadic input at the end.
        outputs: flat.
        grads: one per output.
        attributes: of the forward call.
        call: computes the operators of its steps; None = their kernels for the CPU.

    Returns:
        One gradient per input tensor, None where there is none; and the calls that were made.

    Raises:
        UnsupportedError: the operator is not differentiable.
    """
    if operator.gradient is None:
        raise UnsupportedError("the operator is not differentiable", where=operator.qualified_name)
    program = GradientProgram.parse(operator.gradient, where=operator.qualified_name)
    values = operator.arrange(inputs, {})
    out_counts = _output_counts(operator, inputs, attributes)
    sources: dict[str, list[Any]] = {
        "i": values,
        "o": grouped(operator.signature.outputs, out_counts, outputs),
        "g": grouped(operator.signature.outputs, out_counts, grads),
    }
    made: dict[int, Any] = {}
    given = operator.coerce(attributes)

    def read(operand: Operand) -> Any:  # noqa: ANN401 - an array, a list of them, or None
        if operand.kind == "-":
            return None
        return made[operand.index] if operand.kind == "v" else sources[operand.kind][operand.index]

    calls = []
    for step in program.steps:
        called = registry.get(step.domain, step.name, step.version)
        named = {name: given[v.name] if isinstance(v, ForwardAttribute) else v for name, v in step.attributes}
        flat: list[Array | None] = []
        for value in map(read, step.operands):
            flat += list(value) if isinstance(value, list | tuple) else [value]
        calls.append(Call(called, flat, named))
        results = output_list(called(*flat, **named)) if call is None else call(called, flat, named)
        counts = _output_counts(called, flat, named)
        made.update(zip(step.results, grouped(called.signature.outputs, counts, results), strict=True))
    found = [read(operand) for operand in program.results]
    return spread(found, [len(group) for group in flattened(_kept(values))]), calls


def _kept(values: Sequence[Any]) -> list[Any]:
    """One tensor stands for an absent input, which takes a place in the flat list too."""
    return [0 if value is None else value for value in values]


def _output_counts(operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[int]:
    shapes = [ABSENT if value is None else value.shape for value in inputs]
    dtypes = [None if value is None else DType.parse(value.dtype) for value in inputs]
    return operator.bind(shapes, dtypes, attributes).output_counts
