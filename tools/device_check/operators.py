"""Which operators the check is about: all of the library, and in a rehearsal those that were built."""

from __future__ import annotations

import opforge as of
from opforge.schema import Operator
from tools.device_check.clock import rehearsing

__all__ = ["operators"]


def operators() -> list[Operator]:
    """Return them."""
    found = list(of.load("opforge.ops"))
    if not rehearsing():
        return found
    wanted = {"CustomGELU", "SparseMatMul"}
    return [operator for operator in found if operator.name in wanted]
