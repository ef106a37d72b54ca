"""Checks of a kernel operator in a process of their own: a kernel that crashes is a finding, with words."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn

from opforge.errors import InternalError, OpforgeError
from opforge.verify import CheckReport
from opforge.verify._rows import Row
from opforge.verify._signals import CAUSES

__all__ = ["Checking", "check_apart"]

Checking = Callable[[CheckReport], object]
"""Fills a report, row by row."""

_FRAMEWORKS = ("torch", "tensorflow", "jax")


def check_apart(report: CheckReport, fill: Checking, hint: str | None) -> bool:
    """Run `fill` in a forked process that sends its rows to `report`; return whether it lived to the end.

    A crash is a failed row of the check "process", with `hint` for what to do.

    Where a framework was imported already, its threads forbid a fork, and the check runs here.

    Raises:
        OpforgeError: what `fill` raised there.
    """
    if any(name in sys.modules for name in _FRAMEWORKS):
        fill(report)
        return True
    receiver, sender = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python warns of threads: those of the spinner and of NumPy's matrix products, which the child does not need.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        receiver.close()
        _checks(report, fill, sender)
    sender.close()
    ended = False
    try:
        part, problem = _received(report, receiver)
        _, status = os.waitpid(child, 0)
        ended = True
    finally:
        if not ended:  # Ctrl-C, or SIGTERM: nobody waits for its rows any more
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
    if problem is not None:
        raise problem
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return True
    report.rows.append(_crash(report.rows, part, code, hint))
    return False


class _Sent(list[Row]):
    """Rows that are sent as they are added."""

    def __init__(self, rows: Sequence[Row], sender: Connection) -> None:
        super().__init__(rows)
        self._sender = sender

    def append(self, row: Row) -> None:
        super().append(row)
        self._sender.send(("row", row))


def _checks(report: CheckReport, fill: Checking, sender: Connection) -> NoReturn:
    """Fill the report in the child; nothing of the parent's is run or cleaned up here."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        sys.stderr = sys.__stderr__  # the spinner's stand-in has a lock, which its thread may hold
    code = 0
    try:
        report.rows = _Sent(report.rows, sender)
        report.begins = lambda part: sender.send(("part", part))
        fill(report)
    except (KeyboardInterrupt, BrokenPipeError):
        code = 130
    except BaseException as problem:
        sender.send(("error", _portable(problem)))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _portable(problem: BaseException) -> OpforgeError:
    """What can be sent of an exception: one of ours as it is, any other as a fault with its traceback."""
    if isinstance(problem, OpforgeError):
        try:
            pickle.loads(pickle.dumps(problem))
        except Exception:  # an exception of a signature of its own
            return OpforgeError(str(problem))
        return problem
    trace = "".join(traceback.format_exception(problem))
    return InternalError(f"{type(problem).__name__}: {problem}", where="opforge check", got=trace)


def _received(report: CheckReport, receiver: Connection) -> tuple[str, OpforgeError | None]:
    """Take rows until the child ends; give the part that it was in, and what it raised."""
    part, problem = "", None
    while True:
        try:
            kind, value = receiver.recv()
        except (EOFError, pickle.UnpicklingError):
            return part, problem
        if kind == "row":
            report.rows.append(value)
        elif kind == "part":
            part = value
        else:
            problem = value


def _crash(rows: Sequence[Row], part: str, code: int, hint: str | None) -> Row:
    """Say how the process ended, in which part and behind which row."""
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    last = ", ".join(word for word in (rows[-1].case, rows[-1].host, rows[-1].dtype) if word) if rows else ""
    during = f" during {part!r}" if part else ""
    after = f" after {rows[-1].check} ({last})" if last else ""
    cause = CAUSES.get(name)
    why = f": {cause}" if cause else ""
    to_do = f"\n  to do: {hint}" if hint else ""
    return Row("process", "", "", "", False, f"the process CRASHED ({name}){during}{after}{why}{to_do}")
