"""What hosts share when they execute gradient programs: parameters and flat tensors, values, the check of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opforge.errors import ArgumentError, SchemaError, UnsupportedError
from opforge.schema import ForwardAttribute, GradientProgram, Parameter, Signature
from opforge.schema.attributes import AttributeValue, Required

__all__ = [
    "Plan",
    "Plans",
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


@dataclass(frozen=True)
class _Step:
    function: Callable[..., Any]
    operands: tuple[tuple[str, int], ...]
    attributes: tuple[tuple[str, str | None, Any], ...]  # name, forward attribute or None, value
    results: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Plan:
    """A pruned program.

    Attributes:
        steps: operator calls.
        results: what each forward input's gradient is.
        inputs: forward inputs that are read, ascending.
        outputs: forward outputs that are read, ascending.
    """

    steps: tuple[_Step, ...]
    results: tuple[tuple[str, int], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Plans:
    """The plans of one operator, made once per choice of wanted gradients."""

    def __init__(self, program: GradientProgram, resolve: Callable[[str], Callable[..., Any]]) -> None:
        """Keep the whole program.

        Args:
            program: of the operator.
            resolve: gives the function of an operator ``domain::Name:version``: one value per input parameter and
                attributes by name, to one value, or several in a sequence where the signature has several outputs.
        """
        self._program = program
        self._resolve = resolve
        self.made: dict[tuple[bool, ...], Plan] = {}

    def __call__(self, wanted: tuple[bool, ...], skip: int = 0) -> Plan:
        """Give the plan for these inputs' gradients: after `skip` others, one entry per input parameter."""
        plan = self.made.get(wanted)
        if plan is None:
            plan = self.made[wanted] = self._make(self._program.prune(wanted[skip:]))
        return plan

    def _make(self, program: GradientProgram) -> Plan:
        steps = tuple(
            _Step(
                function=self._resolve(step.key),
                operands=tuple((operand.kind, operand.index) for operand in step.operands),
                attributes=tuple(
                    (name, value.name, None) if isinstance(value, ForwardAttribute) else (name, None, value)
                    for name, value in step.attributes
                ),
                results=tuple(("v", index) for index in step.results),
            )
            for step in program.steps
        )
        results = tuple((operand.kind, operand.index) for operand in program.results)
        return Plan(steps, results, program.reads("i"), program.reads("o"))


def run(plan: Plan, values: Values, attributes: Mapping[str, Any]) -> list[Any]:
    """Execute a plan.

    Args:
        plan: what is wanted.
        values: forward inputs ``i``, outputs ``o`` and output gradients ``g``; results of steps are added.
        attributes: of the forward operator.

    Returns:
        One gradient (a list for a variadic one, None where there is none) per input parameter.
    """
    find = values.get
    for step in plan.steps:
        given = {
            name: attributes[forward] if forward is not None else value for name, forward, value in step.attributes
        }
        outputs = step.function(*[find(operand) for operand in step.operands], **given)
        if len(step.results) == 1:
            values[step.results[0]] = outputs
        else:
            values.update(zip(step.results, outputs, strict=True))
    return [find(result) for result in plan.results]


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


def not_differentiable(where: str, instead: str) -> UnsupportedError:
    """Return the error of a backward pass through an operator without a gradient."""
    return UnsupportedError(
        "the operator is not differentiable",
        where=where,
        expected="a gradient program",
        got="none is declared",
        hint=f"declare the operator with gradient=, or {instead}",
    )
