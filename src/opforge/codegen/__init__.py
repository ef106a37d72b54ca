"""Emitters: one per language. They turn declared operators into source text and run nothing."""

from __future__ import annotations

from collections.abc import Sequence

from opforge.codegen.cpp import formula_unit
from opforge.codegen.cpp_dispatch import declaration, dispatch_unit, has_kernels, kernel_sources
from opforge.codegen.cpp_table import table_unit
from opforge.codegen.cuda import cuda_unit
from opforge.codegen.units import Unit
from opforge.schema.operator import Operator

__all__ = [
    "Unit",
    "declaration",
    "dispatch_unit",
    "formula_unit",
    "has_kernels",
    "kernel_sources",
    "kernel_units",
    "table_unit",
]


def kernel_units(operators: Sequence[Operator], device: str = "cpu") -> list[Unit]:
    """Emit the units that hold the operators' kernels for a device: one per formula, one per set of sources."""
    formula = formula_unit if device == "cpu" else cuda_unit
    units = [formula(operator) for operator in operators if operator.is_formula]
    by_sources: dict[object, list[Operator]] = {}
    for operator in operators:
        if not operator.is_formula:
            by_sources.setdefault(kernel_sources(operator, device), []).append(operator)
    return units + [dispatch_unit(group, device) for group in by_sources.values()]
