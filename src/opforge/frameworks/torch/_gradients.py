"""Gradient programs on PyTorch tensors: pruned to what is asked for, resolved to registered operators, executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opforge.errors import SchemaError
from opforge.schema import ForwardAttribute, GradientProgram

if TYPE_CHECKING:
    from opforge.frameworks.torch._entries import Entry

__all__ = ["Plan", "Plans", "Values", "check_shapes", "run"]

Values = dict[tuple[str, int], Any]
"""What a program reads and makes: (kind, parameter) -> a tensor, a list of them for a variadic, or None."""


@dataclass(frozen=True)
class _Step:
    overload: Callable[..., Any]
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

    def __init__(self, program: GradientProgram) -> None:
        """Keep the whole program."""
        self._program = program
        self.made: dict[tuple[bool, ...], Plan] = {}

    def __call__(self, wanted: tuple[bool, ...], skip: int = 0) -> Plan:
        """Give the plan for these inputs' gradients: after `skip` others, one entry per input parameter."""
        plan = self.made.get(wanted)
        if plan is None:
            plan = self.made[wanted] = _make(self._program.prune(wanted[skip:]))
        return plan


def _make(program: GradientProgram) -> Plan:
    from opforge.frameworks.torch._entries import entry_of

    steps: list[_Step] = []
    for step in program.steps:
        target = entry_of(step.key)
        steps.append(
            _Step(
                overload=target.overload,
                operands=tuple((operand.kind, operand.index) for operand in step.operands),
                attributes=tuple(
                    (name, value.name, None) if isinstance(value, ForwardAttribute) else (name, None, value)
                    for name, value in step.attributes
                ),
                results=tuple(("v", index) for index in step.results),
            )
        )
    results = tuple((operand.kind, operand.index) for operand in program.results)
    return Plan(tuple(steps), results, program.reads("i"), program.reads("o"))


def run(plan: Plan, values: Values, attributes: Mapping[str, Any]) -> list[Any]:
    """Execute a plan; give one gradient (a list for a variadic, None where there is none) per input parameter."""
    find = values.get
    for step in plan.steps:
        given = {
            name: attributes[forward] if forward is not None else value for name, forward, value in step.attributes
        }
        outputs = step.overload(*[find(operand) for operand in step.operands], **given)
        if len(step.results) == 1:
            values[step.results[0]] = outputs
        else:
            values.update(zip(step.results, outputs, strict=True))
    return [find(result) for result in plan.results]


def check_shapes(entry: Entry, gradients: Sequence[Any], shapes: Sequence[Any], counts: Sequence[int] = ()) -> None:
    """Raise where a gradient's shape is not its input's, before autograd sums or expands it silently."""
    for index, (gradient, shape) in enumerate(zip(gradients, shapes, strict=True)):
        if gradient is not None and gradient.shape != shape:
            raise SchemaError(
                "the gradient program gives a wrong shape",
                where=f"{entry.where}, gradient of {_name(entry, index, counts)}",
                expected=list(shape),
                got=list(gradient.shape),
                hint="correct gradient= of the operator",
            )


def _name(entry: Entry, flat: int, counts: Sequence[int]) -> str:
    """Name the parameter of a flat input tensor; without counts there is one tensor per parameter."""
    inputs = entry.signature.inputs
    owners = [p.name for p, count in zip(inputs, counts or [1] * len(inputs), strict=True) for _ in range(count)]
    return owners[flat]
