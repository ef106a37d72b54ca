"""A check whose rows are sent as they come to the process that waits for them, and what that one makes of them."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO

from opforge.errors import InternalError, OpforgeError
from opforge.verify._announced import Call, listen
from opforge.verify._declared import UndeclaredError
from opforge.verify._packed import packed, unpacked
from opforge.verify._rows import Row

if TYPE_CHECKING:
    from opforge.verify.checking import CheckReport

__all__ = ["Followed", "SilentError", "send_check"]


class SilentError(Exception):
    """A check says nothing for as long as it may."""


class _Sent(list[Row]):
    """Rows that are sent as they are added."""

    def __init__(self, rows: Sequence[Row], send: Callable[[str, Any], None]) -> None:
        super().__init__(rows)
        self._send = send

    def append(self, row: Row) -> None:
        super().append(row)
        self._send("row", row)


def send_check(pipe: Connection[Any, Any], report: CheckReport, fill: Callable[[CheckReport], object]) -> None:
    """Fill a report; tell parts, calls, rows and warnings as they come, and the end: "done", or an error."""
    lock = Lock()  # calls come from several threads

    def send(kind: str, value: Any = None) -> None:  # noqa: ANN401
        with lock:
            pipe.send((kind, value))

    def warned(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del file, line
        known = next(kind for kind in category.__mro__ if kind.__module__ == "builtins")
        send("warning", (str(message), known, filename, lineno))

    report.rows = _Sent(report.rows, send)
    report.begins = lambda part: send("part", part)
    listen(lambda call: send("call", tuple(call)))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = warned
            fill(report)
    except UndeclaredError as problem:
        send("undeclared", packed(problem))
    except OpforgeError as problem:
        send("error", packed(problem))
    except Exception as problem:
        trace = "".join(traceback.format_exception(problem))
        fault = InternalError(f"{type(problem).__name__}: {problem}", where="opforge check", got=trace)
        send("error", packed(fault))
    else:
        send("done")
    finally:
        listen(None)


class Followed:
    """What is known of a check that runs elsewhere.

    Attributes:
        part: the part that it is in.
        call: the last call that it announced in this part.
    """

    def __init__(self, report: CheckReport) -> None:
        self._report = report
        self.part = ""
        self.call: Call | None = None

    def to_the_end(self, pipe: Connection[Any, Any], patience: float | None = None) -> None:
        """Take what comes until the check is done.

        Args:
            pipe: where it comes from.
            patience: seconds without a word after which nothing more is waited for; None = as long as it takes.

        Raises:
            EOFError: the other process ended before.
            SilentError: nothing came for so long.
            UndeclaredError: the other process cannot declare the operator.
            OpforgeError: what the check raised there.
        """
        while True:
            if not pipe.poll(patience):
                raise SilentError
            kind, value = pipe.recv()
            if kind == "row":
                self._report.rows.append(value)
            elif kind == "part":
                self.part, self.call = value, None
            elif kind == "call":
                self.call = Call(*value)
            elif kind == "warning":
                text, category, filename, lineno = value
                warnings.warn_explicit(text, category, filename, lineno)
            elif kind == "error":
                problem = unpacked(value)
                assert problem is not None
                raise problem
            elif kind == "undeclared":
                problem = unpacked(value)
                assert problem is not None
                raise UndeclaredError(
                    problem.what, where=problem.where, expected=problem.expected, got=problem.got, hint=problem.hint
                )
            else:
                return
