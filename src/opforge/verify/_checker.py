"""The process that checks what may end it, kernels of authors: `python -m opforge.verify._checker FD`; see `apart`."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING, Any

from opforge._environment import report_faults
from opforge._quiet import quiet_commands
from opforge.verify._spawn import end_with_parent

if TYPE_CHECKING:
    from opforge.verify._jobs import Job

__all__ = ["main"]


def main() -> None:
    """Answer jobs until the other side closes."""
    end_with_parent()
    report_faults()
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.set_inheritable(pipe.fileno(), False)  # a compiler that outlives this process must not hold it open
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a script says again what it said before
    quiet_commands()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    try:
        while True:
            _check(pipe, *pipe.recv())
    except (EOFError, BrokenPipeError):
        return
    except KeyboardInterrupt:
        sys.exit(130)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Clean up once: the terminal interrupts this process, and so does the one that waits for it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _check(pipe: Connection[Any, Any], job: Job, level: str, seed: int, words: list[str]) -> None:
    from opforge.verify._sending import send_check
    from opforge.verify.checking import CheckReport

    sys.argv = words
    send_check(pipe, CheckReport("", level, seed), partial(job.fill, **job.arguments))


if __name__ == "__main__":
    main()
