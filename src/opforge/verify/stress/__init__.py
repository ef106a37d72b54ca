"""Stress: a model or operators called for a while by several threads; does anything leak, race, drift or crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opforge import errors
from opforge.errors import ArgumentError, CandidateError, OpforgeError, UnsupportedError
from opforge.verify.stress._histogram import Histogram
from opforge.verify.stress._memory import Growth, growth, resident_bytes
from opforge.verify.stress._report import StressReport, Verdict, judge, write
from opforge.verify.stress._spec import Spec
from opforge.verify.stress._watch import stopping_signals, watch

__all__ = [
    "Growth",
    "Histogram",
    "Spec",
    "StressReport",
    "Verdict",
    "growth",
    "resident_bytes",
    "stress",
]


def stress(
    spec: Spec, folder: Path, *, show: Callable[[Mapping[str, Any]], None] = lambda figures: None
) -> StressReport:
    """Run the target in a process of its own, and write what was found to a folder.

    The report is written whatever happens to that process, and also when SIGINT or SIGTERM ends the run early.

    Args:
        spec: what to run, for how long, with how many callers.
        folder: where ``stress.json``, ``stress.txt`` and the inputs of failures go.
        show: called a few times a second with figures for a line of progress.

    Raises:
        OpforgeError: the target cannot be prepared, or none of its cases runs at all.
    """
    with stopping_signals() as came, watch(spec, came, show) as seen:
        if seen.ended == "refused":
            raise _again(**seen.messages["refused"])
        report = judge(spec, seen)
        write(report, seen, folder)
        return report


def _again(kind: str, text: str) -> OpforgeError:
    """Make the error that the other process raised; its text is whole already."""
    found = getattr(errors, kind, ArgumentError)
    plain = UnsupportedError if found is CandidateError else found
    problem: OpforgeError = plain(text)
    return problem
