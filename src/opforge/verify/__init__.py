"""Checks and comparisons: is an operator right, and do engines agree."""

from __future__ import annotations

from opforge.verify._engines import choose_engines, default_engines, engines, find_engine, reasons
from opforge.verify._inputs import flat_values, gather_values, load_npz, random_inputs
from opforge.verify._measures import Difference, measure
from opforge.verify.checking import CheckReport, check
from opforge.verify.comparison import Comparison, compare
from opforge.verify.strangers import check_function, check_node

__all__ = [
    "CheckReport",
    "Comparison",
    "Difference",
    "check",
    "check_function",
    "check_node",
    "choose_engines",
    "compare",
    "default_engines",
    "engines",
    "find_engine",
    "flat_values",
    "gather_values",
    "load_npz",
    "measure",
    "random_inputs",
    "reasons",
]
