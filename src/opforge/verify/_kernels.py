"""The kernel operators that a model holds: code of their authors, which may end the process that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opforge.errors import OpforgeError
from opforge.schema import Operator, discover, registry
from opforge.schema.gradient import GradientProgram

__all__ = ["NO_KERNELS", "Kernels", "kernels_of", "may_crash"]


@dataclass(frozen=True)
class Kernels:
    """What a model holds; truthy where there is anything.

    Attributes:
        operators: declared here.
        others: names of those that nothing declares here; their libraries may be found all the same.
    """

    operators: tuple[Operator, ...] = ()
    others: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.operators or self.others)


NO_KERNELS = Kernels()


def may_crash(operator: Operator) -> bool:
    """Whether the operator, or one that its gradient calls, is a kernel of an author."""
    if not operator.is_formula:
        return True
    if operator.gradient is None:
        return False
    steps = GradientProgram.parse(operator.gradient, where=operator.qualified_name).steps
    called = [registry.find(step.domain, step.name, step.version) for step in steps]
    return any(one is not None and not one.is_formula for one in called)


def kernels_of(model: Path) -> Kernels:
    """Return the kernel operators of an .onnx or a .bin; none where the file is no model, which whoever loads it says.

    Installed operator packages are imported where an operator is not known yet.
    """
    try:
        named = list(dict.fromkeys(_required(model) if model.suffix == ".bin" else _nodes(model)))
    except OpforgeError:
        return NO_KERNELS
    found = [_find(*name) for name in named]
    operators = dict.fromkeys(one for one in found if one is not None and not one.is_formula)
    others = [f"{domain}::{name}" for (domain, name, _), one in zip(named, found, strict=True) if one is None]
    return Kernels(tuple(operators), tuple(others) if model.suffix == ".bin" else ())


def _find(domain: str, name: str, version: int | None) -> Operator | None:
    found = registry.find(domain, name, version)
    if found is None:
        discover()
        found = registry.find(domain, name, version)
    return found


def _required(model: Path) -> Iterator[tuple[str, str, int]]:
    from opforge.bin.format import read, read_table
    from opforge.bin.layout import Kind

    if any(section.kind == Kind.OPERATORS for section in read_table(model).sections):
        for item in read(model).program.required:
            yield item.domain, item.name, item.version


def _nodes(model: Path) -> Iterator[tuple[str, str, int | None]]:
    from opforge.onnx._read import read_model
    from opforge.onnx._walk import nodes, standard

    for place in nodes(read_model(model, weights=False)):
        domain = place.node.domain
        if not standard(domain):
            yield domain, place.node.op_type, place.opsets.get(domain)
