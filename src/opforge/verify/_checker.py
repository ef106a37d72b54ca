"""The process that checks operators whose kernels may end it: `python -m opforge.verify._checker FD`, see `apart`."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from opforge._quiet import quiet_commands

__all__ = ["main"]


def main() -> None:
    """Answer jobs until the other side closes."""
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(pipe.fileno(), False)  # a compiler that outlives this process must not hold it open
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a script says again what it said before
    quiet_commands()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    try:
        while True:
            _check(pipe, pipe.recv())
    except (EOFError, BrokenPipeError):
        return
    except KeyboardInterrupt:
        sys.exit(130)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Clean up once: the terminal interrupts this process, and so does the one that waits for it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _check(pipe: Connection[Any, Any], job: dict[str, Any]) -> None:
    from opforge.schema.author import author_code
    from opforge.verify._declared import UndeclaredError, declare
    from opforge.verify._packed import packed
    from opforge.verify._sending import send_check
    from opforge.verify.checking import CheckReport, check

    sys.argv, target, operator = job.pop("words"), job.pop("target"), job.pop("operator")
    try:
        declared = declare(target, *operator)
    except UndeclaredError as problem:
        pipe.send(("undeclared", packed(problem)))
        return
    os.dup2(2, 1)  # what an author's code prints is none of the user's output

    def fill(report: CheckReport) -> None:
        with author_code("the check cannot run", target):
            check(declared, report=report, isolate=False, **job)

    send_check(pipe, CheckReport("", job["level"], job["seed"]), fill)


if __name__ == "__main__":
    main()
