"""Which operators the check is about: all of the library, and in a rehearsal those that were built."""

from __future__ import annotations

import json
import os
from pathlib import Path

import opforge as of
from opforge.schema import Operator
from tools.device_check.clock import rehearsing

__all__ = ["operators", "rehearsed"]


def operators() -> list[Operator]:
    """Return them."""
    found = list(of.load("opforge.ops"))
    if not rehearsing():
        return found
    return [operator for operator in found if operator.name in rehearsed()]


def rehearsed() -> set[str]:
    """Return the names of the operators whose emulated libraries were built."""
    names: set[str] = set()
    for file in Path(os.environ["OPFORGE_LIBRARY_PATH"]).glob("*_cuda.manifest.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        names |= {operator["name"] for operator in content["operators"]}
    return names
