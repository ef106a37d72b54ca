"""What hosts share when they execute gradient programs: parameters and flat tensors, values, the check of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opforge.errors import ArgumentError, SchemaError, UnsupportedError
from opforge.schema import ForwardAttribute, GradientProgram, Operand, Parameter, Signature
from opforge.schema.attributes import AttributeValue, Required

__all__ = [
    "Values",
    "arranged",
    "check_shape",
    "complete",
    "converted",
    "flattened",
    "grouped",
    "not_differentiable",
    "run",
    "split",
    "spread",
]

Values = dict[tuple[str, int], Any]
"""What a program reads and makes: (kind, parameter) -> a tensor, a list of them for a variadic one, or None."""

Call = Callable[[str, Sequence[Any], Mapping[str, AttributeValue]], Sequence[Any]]
"""Computes the operator ``domain::Name:version`` on one value per input parameter; gives one per output parameter."""


def split(values: Iterable[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Cut a flat sequence into groups."""
    rest = iter(values)
    return [[next(rest) for _ in range(count)] for count in counts]


def grouped(parameters: Sequence[Parameter], counts: Sequence[int], flat: Iterable[Any]) -> list[Any]:
    """Give one value per parameter: a tensor, None where it is absent, a list for the variadic one."""
    groups = split(flat, counts)
    return [g if p.variadic else g[0] if g else None for p, g in zip(parameters, groups, strict=True)]


def arranged(where: str, signature: Signature, tensors: Sequence[Any]) -> list[Any]:
    """Bring a call by position to one entry per parameter: None where one is absent, a tuple for the variadic one.

    Raises:
        ArgumentError: there are more values than parameters.
    """
    inputs = signature.inputs
    if len(tensors) > len(inputs):
        raise ArgumentError(
            "wrong number of inputs", where=where, expected=signature.expected_inputs(), got=len(tensors)
        )
    filled = (*tensors, *[() if p.variadic else None for p in inputs[len(tensors) :]])
    return [tuple(t) if p.variadic else t for p, t in zip(inputs, filled, strict=True)]


def converted(
    signature: Signature, tensors: Sequence[Any], known: Mapping[str, Any], convert: Callable[[Any, Any], Any]
) -> list[list[Any]]:
    """Give the tensors of each parameter of an arranged call, each through ``convert(value, dtype of its type)``."""
    groups = []
    for parameter, value in zip(signature.inputs, tensors, strict=True):
        items = value if isinstance(value, tuple) else () if value is None else (value,)
        groups.append([convert(item, known.get(parameter.type)) for item in items])
    return groups


def flattened(values: Iterable[Any]) -> list[list[Any]]:
    """Give the tensors of each value: none, one, or those of a list."""
    return [list(v) if isinstance(v, list | tuple) else [] if v is None else [v] for v in values]


def spread(values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """Give one entry per tensor; a value that is None stands for all tensors of its parameter."""
    rows = zip(values, counts, strict=True)
    return [item for value, count in rows for item in (value if isinstance(value, list) else [value] * count)]


def run(program: GradientProgram, values: Values, attributes: Mapping[str, AttributeValue], call: Call) -> list[Any]:
    """Execute a program.

    Args:
        program: pruned to what is wanted.
        values: forward inputs ``i``, outputs ``o`` and output gradients ``g``; results of steps are added.
        attributes: of the forward operator.
        call: computes one step.

    Returns:
        One gradient (a list for a variadic one, None where there is none) per input parameter.
    """
    for step in program.steps:
        given = {
            name: attributes[value.name] if isinstance(value, ForwardAttribute) else value
            for name, value in step.attributes
        }
        results = call(step.key, [_find(values, operand) for operand in step.operands], given)  # type: ignore[arg-type]
        values.update((("v", index), value) for index, value in zip(step.results, results, strict=True))
    return [_find(values, result) for result in program.results]


def _find(values: Values, operand: Operand) -> Any:  # noqa: ANN401
    return values.get((operand.kind, operand.index))


def complete(signature: Signature, given: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Coerce a step's attributes and fill in defaults, in declared order."""
    values: dict[str, AttributeValue] = {}
    for declared in signature.attributes:
        value = declared.coerce(given[declared.name]) if declared.name in given else declared.default
        assert not isinstance(value, Required)
        values[declared.name] = value
    return values


def check_shape(where: str, name: str, expected: Sequence[Any], got: Sequence[Any], *, fits: bool) -> None:
    """Raise where a gradient's shape is not its input's, before a framework sums or expands it silently."""
    if not fits:
        raise SchemaError(
            "the gradient program gives a wrong shape",
            where=f"{where}, gradient of {name}",
            expected=list(expected),
            got=list(got),
            hint="correct gradient= of the operator",
        )


def not_differentiable(where: str, detach: str) -> UnsupportedError:
    """Return the error of a backward pass through an operator without a gradient."""
    return UnsupportedError(
        "the operator is not differentiable",
        where=where,
        expected="a gradient program",
        got="none is declared",
        hint=f"declare the operator with gradient=, or use {detach} on the input",
    )
