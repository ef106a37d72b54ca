"""Formulas: expression nodes, tracing, differentiation, rewriting, reference, bytecode.

Names load on first use. The modules of `formula` and `kernel` are called ``formulas`` and ``kernels``, so that
importing a module never hides a function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opforge.expr.builder import ProgramBuilder as ProgramBuilder
    from opforge.expr.declare import formula as formula
    from opforge.expr.formulas import Formula as Formula
    from opforge.expr.kernels import kernel as kernel
    from opforge.expr.nodes import Node as Node
    from opforge.expr.nodes import ValueType as ValueType
    from opforge.expr.program import Constant as Constant
    from opforge.expr.program import Instruction as Instruction
    from opforge.expr.program import Output as Output
    from opforge.expr.program import Program as Program

_HOMES = {
    "Constant": "program",
    "Formula": "formulas",
    "Instruction": "program",
    "Node": "nodes",
    "Output": "program",
    "Program": "program",
    "ProgramBuilder": "builder",
    "ValueType": "nodes",
    "formula": "declare",
    "kernel": "kernels",
}

__all__ = [
    "Constant",
    "Formula",
    "Instruction",
    "Node",
    "Output",
    "Program",
    "ProgramBuilder",
    "ValueType",
    "formula",
    "kernel",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class, a function or a number
    if name.startswith("__"):
        raise AttributeError(name)
    home = import_module(f"opforge.expr.{_HOMES.get(name, 'functions')}")
    try:
        value = getattr(home, name)
    except AttributeError:
        raise AttributeError(f"module 'opforge.expr' has no attribute {name!r}") from None
    globals()[name] = value
    return value
