"""The check of an operator of others that a command names, in this process or in one of its own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opforge.cli._targets import author_code, load_factory, load_value
from opforge.errors import ArgumentError

if TYPE_CHECKING:
    from opforge.verify import CheckReport
    from opforge.verify._jobs import Job

__all__ = ["check_stranger", "stranger_job"]

_SANITIZED = (
    "build its library with -g -fsanitize=address; the same command then names the line, with --in-process and "
    "LD_PRELOAD=$(gcc -print-file-name=libasan.so)"
)


def stranger_job(target: str, reference: str, cases: str | None, library: Path | None, dtypes: Sequence[str]) -> Job:
    """Return the check for a process of its own, which imports what the command names.

    Raises:
        ArgumentError: something is not named.
    """
    from opforge.verify._jobs import Job

    if cases is None:
        raise ArgumentError("the inputs to check with are missing", where=target, hint="--cases module.py:NAME")
    if "::" in target and library is None:
        raise ArgumentError("what registers the operator is missing", where=target, hint="--library FILE.so")
    words = ["opforge", "check", target, "--reference", reference, "--cases", cases]
    words += ["--library", str(library)] if library is not None else []
    words += [word for dtype in dtypes for word in ("--dtype", dtype)]
    arguments = {"target": target, "reference": reference, "cases": cases, "library": library, "dtypes": tuple(dtypes)}
    return Job(target, _fill, arguments, again=shlex.join(words), find=_SANITIZED)


def check_stranger(
    report: CheckReport, target: str, reference: str, cases: str, library: Path | None, dtypes: Sequence[str]
) -> None:
    """Fill a report in this process."""
    from opforge.verify import check_function, check_node
    from opforge.verify.strangers import torch_operator

    chosen = dtypes or ("f32", "f64")
    with author_code("the check cannot run", target):
        rows = list(load_value(cases))
        function = load_factory(reference)
        level, seed = report.level, report.seed
        if "::" in target:
            assert library is not None
            check_node(target, function, rows, library=library, level=level, seed=seed, dtypes=chosen, report=report)
            return
        given = torch_operator(target, library) if target.startswith("torch.ops.") else load_factory(target)
        check_function(given, function, rows, level=level, seed=seed, name=target, dtypes=chosen, report=report)


def _fill(
    report: CheckReport, target: str, reference: str, cases: str, library: Path | None, dtypes: Sequence[str]
) -> None:
    os.dup2(2, 1)  # what an author's code prints is none of the user's output
    check_stranger(report, target, reference, cases, library, dtypes)
