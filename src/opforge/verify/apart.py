"""Checks of operators in a process of their own: a kernel that crashes there is a finding, with words.

The process is a new one that declares the operator again, since a fork is unsafe where a framework has threads. Only
an operator that no other process can declare, such as one of a notebook, is tried in a fork before it is checked here:
by NumPy alone, which has no threads that the child would miss.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opforge.errors import OpforgeError
from opforge.schema import Operator
from opforge.verify._declared import UndeclaredError, import_paths, target_of
from opforge.verify._rows import Row
from opforge.verify._sending import Followed, send_check
from opforge.verify._signals import CAUSES, ended, how_to_find
from opforge.verify._spawn import spawn
from opforge.verify.hosts import known_hosts

if TYPE_CHECKING:
    from opforge.verify.checking import CheckReport

__all__ = ["CheckProcess", "check_forked"]

_PATIENCE: Final = 3.0
"""Seconds that a process may take to end when it is told to."""
_WORDS: Final = 300


class CheckProcess:
    """Starts with the first check; one that crashed is followed by another. Use it in a ``with`` statement."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CheckProcess:
        return self

    def __exit__(self, *trace: object) -> None:
        if self._process is not None:
            self._pipe.close()
            _wait(self._process)
        self._log.close()

    def check(self, operator: Operator, report: CheckReport, options: Mapping[str, Any]) -> bool:
        """Fill a report there, row by row; return whether the process lived to the end.

        A crash is a failed row of the check "process": the call that was under way, and how to see it again.

        Args:
            operator: what is checked.
            report: what is filled.
            options: those of `opforge.verify.check` besides its subject, level and seed.

        Raises:
            UndeclaredError: no other process can declare the operator; the report is as it was.
            OpforgeError: what the check raised there.
        """
        job = {
            "target": target_of(operator),
            "operator": (operator.domain, operator.name, operator.since_version, operator.schema_hash),
            "words": sys.argv,
            "level": report.level,
            "seed": report.seed,
            **options,
        }
        process = self._running()
        before = os.fstat(self._log.fileno()).st_size
        followed, answered = Followed(report), False
        try:
            self._pipe.send(job)
            followed.to_the_end(self._pipe)
            answered = True
        except (EOFError, OSError):
            self._process = None
            self._pipe.close()
            said = self._words(before)
            report.rows.append(_crash(operator, report, followed, _wait(process), said, bool(options["sanitize"])))
            return False
        except OpforgeError:
            answered = True
            raise
        finally:
            if not answered and self._process is not None:  # Ctrl-C: nobody waits for its rows any more
                self._process = None
                process.send_signal(signal.SIGINT)
                _wait(process)
                self._pipe.close()
            sys.stderr.write(self._words(before))
        return True

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, started if need be."""
        if self._process is None:
            self._process, self._pipe = spawn("opforge.verify._checker", self._log, import_paths())
        return self._process

    def _words(self, place: int) -> str:
        """What was said from a place of the log on; the processes share its position, so it is not moved."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size - place, place).decode(errors="replace")


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def check_forked(operator: Operator, report: CheckReport, fill: Callable[[CheckReport], object]) -> bool:
    """Fill a report in a fork of this process, as `CheckProcess.check` does; for what needs NumPy alone."""
    ours, theirs = Pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python and JAX warn of threads, which the child does not need
        child = os.fork()
    if child == 0:
        code = 1
        try:
            ours.close()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if sys.__stderr__ is not None:
                sys.stderr = sys.__stderr__  # a stand-in may have a lock, which another thread may hold
            send_check(theirs, report, fill)
            code = 0
        finally:
            os._exit(code)  # nothing of the parent's is cleaned up here
    theirs.close()
    followed, ending = Followed(report), None
    try:
        followed.to_the_end(ours)
    except EOFError:
        ending = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        ours.close()
        if ending is None:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
    if ending is None:
        return True
    report.rows.append(_crash(operator, report, followed, ending))
    return False


def _crash(
    operator: Operator,
    report: CheckReport,
    followed: Followed,
    code: int,
    words: str = "",
    sanitized: bool = False,
) -> Row:
    """Say how the process ended, in which call, and what shows it again."""
    call, name = followed.call, ended(code)
    during = f" during {followed.part!r}" if followed.part else ""
    cause = CAUSES.get(name)
    said = [line.strip() for line in words.splitlines() if line.strip()]
    lines = [f"{operator.qualified_name} CRASHED the process ({name}){during}{f': {cause}' if cause else ''}"]
    if said:
        lines.append(f"  got: {said[-1][:_WORDS]}")
    try:
        target = target_of(operator).removeprefix(f"{Path.cwd()}/") + f":{operator.name}"
    except UndeclaredError as problem:
        lines.append(f"  to reproduce: {problem.hint}")
    else:
        host = call.host.partition(" ")[0] if call is not None else ""
        chosen = f" --host {host}" if host in known_hosts() else ""
        options = f"{chosen} --level {report.level} --seed {report.seed}"
        lines.append(f"  to reproduce: opforge check {shlex.quote(target)}{options}")
        if not sanitized:  # that finds the line next
            lines.append(f"  to do: {how_to_find(shlex.quote(target))}")
    where = (call.case, call.host, call.dtype) if call is not None else ("", "", "")
    return Row("process", *where, False, "\n".join(lines))
