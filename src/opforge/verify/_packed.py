"""Errors on their way between processes: exceptions themselves need not pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import opforge.errors
from opforge.errors import CandidateError, OpforgeError, UnsupportedError

__all__ = ["Packed", "packed", "unpacked"]

Packed = tuple[str, Mapping[str, Any], str]
"""An error's class, its parts where it is one of opforge, and its text."""


def packed(problem: BaseException) -> Packed:
    """Take an exception apart."""
    parts: dict[str, Any] = {}
    if isinstance(problem, OpforgeError):
        parts = {name: str(value) for name, value in vars(problem).items() if value is not None}
    known = [kind.__name__ for kind in type(problem).__mro__ if kind.__module__ == opforge.errors.__name__]
    return known[0] if known else type(problem).__name__, parts, str(problem)


def unpacked(taken: Packed) -> OpforgeError | None:
    """The error that was raised there; None for one that is none of opforge's."""
    kind, parts, text = taken
    known = getattr(opforge.errors, kind, None)
    if not parts or known is None:
        return None
    known = UnsupportedError if issubclass(known, CandidateError) else known  # candidates stay there
    problem: OpforgeError = known.__new__(known)
    for name in ("what", "where", "expected", "got", "hint"):
        setattr(problem, name, parts.get(name))
    problem.args = (text,)
    return problem
