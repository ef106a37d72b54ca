"""Which operators one library holds, and what it is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata

import opforge
from opforge.schema import GradientProgram, registry
from opforge.schema.operator import Operator

__all__ = ["LibraryPlan", "plan_library"]


@dataclass(frozen=True)
class LibraryPlan:
    """A library to build.

    Attributes:
        operators: all of its operators, gradients included, in a fixed order.
        id: the operator package's name.
        version: the package's version.
        name: file name without suffix.
    """

    operators: tuple[Operator, ...]
    id: str
    version: str
    name: str

    @property
    def kernel_operators(self) -> tuple[Operator, ...]:
        """Return those that need a compiler."""
        return tuple(o for o in self.operators if not o.is_formula)


def plan_library(operators: Sequence[Operator], *, name: str | None = None) -> LibraryPlan:
    """Plan the library of `operators`, their gradient operators and those that their gradient programs call.

    Operators of another package that a program calls stay in that package's library.
    """
    closure: dict[str, Operator] = {}
    pending = list(operators)
    while pending:
        operator = pending.pop(0)
        if operator.key in closure:
            continue
        closure[operator.key] = operator
        pending += operator.derived
        pending += _called(operator, {*closure, *(o.key for o in pending)})
    first = operators[0]
    library_id = first.package or first.host_namespace
    return LibraryPlan(
        operators=tuple(closure.values()),
        id=library_id,
        version=_version(first),
        name=name or f"{first.host_namespace}_{first.host_name}_v{first.since_version}",
    )


def _called(operator: Operator, known: Iterable[str]) -> list[Operator]:
    if not operator.gradient:
        return []
    found = []
    for step in GradientProgram.parse(operator.gradient, where=operator.key).steps:
        if step.key not in known:
            other = registry.get(step.domain, step.name, step.version)
            if other.package == operator.package:
                found.append(other)
    return found


def _version(operator: Operator) -> str:
    """Return the version of the distribution that declares the operator, "0" for loose files."""
    package = operator.module.partition(".")[0]
    if package == "opforge":
        return opforge.__version__
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):
        return "0"
