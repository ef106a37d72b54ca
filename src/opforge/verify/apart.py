"""Checks in a process of their own: a kernel that crashes there, or never comes back, is a finding, with words.

The process is a new one that declares operators again, since a fork is unsafe where a framework has threads. Only an
operator that no other process can declare, such as one of a notebook, is tried in a fork before it is checked here: by
NumPy alone, which has no threads that the child would miss.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Final

from opforge.errors import OpforgeError
from opforge.verify._declared import import_paths
from opforge.verify._jobs import Job
from opforge.verify._rows import Row
from opforge.verify._sending import Followed, SilentError, send_check
from opforge.verify._signals import CAUSES, ended, last_words
from opforge.verify._spawn import spawn
from opforge.verify.hosts import known_hosts

if TYPE_CHECKING:
    from opforge.verify.checking import CheckReport

__all__ = ["PATIENCE", "CheckProcess", "check_forked"]

PATIENCE: Final = 600.0
"""Seconds without a word from a check after which it is taken to hang: compilers of large kernels take minutes."""
_GRACE: Final = 3.0
"""Seconds that a process may take to end when it is told to."""


class CheckProcess:
    """Starts with the first check; one that crashed is followed by another. Use it in a ``with`` statement.

    Args:
        patience: seconds without a word from a check after which it is taken to hang; None = as long as it takes.
    """

    def __init__(self, patience: float | None = PATIENCE) -> None:
        self._patience = patience
        self._log = tempfile.TemporaryFile()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CheckProcess:
        return self

    def __exit__(self, *trace: object) -> None:
        if self._process is not None:
            self._pipe.close()
            _wait(self._process)
        self._log.close()

    def check(self, job: Job, report: CheckReport) -> bool:
        """Fill a report there, row by row; return whether the process lived to the end.

        A crash is a failed row of the check "process": the call that was under way, and how to see it again. So is a
        check that says nothing for longer than it may.

        Args:
            job: what is done there.
            report: what is filled.

        Raises:
            UndeclaredError: that process cannot declare an operator; the report is as it was.
            OpforgeError: what the check raised there.
        """
        process = self._running()
        before = os.fstat(self._log.fileno()).st_size
        followed, answered = Followed(report), False
        try:
            self._pipe.send((job, report.level, report.seed, sys.argv))
            followed.to_the_end(self._pipe, self._patience)
            answered = True
        except (EOFError, OSError):
            self._process = None
            self._pipe.close()
            report.rows.append(_crash(job, report, followed, _wait(process), self._words(before)))
            return False
        except SilentError:
            report.rows.append(_hung(job, report, followed, self._patience or 0))
            return False
        except OpforgeError:
            answered = True
            raise
        finally:
            if not answered and self._process is not None:  # Ctrl-C, or a call that does not end: nobody waits for it
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
        return process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def check_forked(job: Job, report: CheckReport) -> bool:
    """Fill a report in a fork of this process, as `CheckProcess.check` does; for what needs NumPy alone."""
    ours, theirs = Pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python and JAX warn of threads, which the child does not need
        gc.freeze()  # what the child would collect of ours might wait for threads that it has not
        child = os.fork()
    if child == 0:
        code = 1
        try:
            ours.close()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if sys.__stderr__ is not None:
                sys.stderr = sys.__stderr__  # a stand-in may have a lock, which another thread may hold
            send_check(theirs, report, job.fill)
            code = 0
        finally:
            os._exit(code)  # nothing of the parent's is cleaned up here
    gc.unfreeze()
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
    report.rows.append(_crash(job, report, followed, ending, ""))
    return False


def _crash(job: Job, report: CheckReport, followed: Followed, code: int, words: str) -> Row:
    """Say how the process ended, in which call, and what shows it again."""
    name = ended(code)
    cause = CAUSES.get(name)
    head = f"{job.name} CRASHED the process ({name}){_during(followed)}{f': {cause}' if cause else ''}"
    return _ended(job, report, followed, head, last_words(words), job.find)


def _hung(job: Job, report: CheckReport, followed: Followed, patience: float) -> Row:
    """Say in which call nothing came any more."""
    head = f"{job.name} HUNG{_during(followed)}: a loop of a kernel does not end, or it waits for itself"
    got = f"nothing for {patience:g} s"
    return _ended(job, report, followed, head, got, "give what only takes long more time with --patience")


def _during(followed: Followed) -> str:
    return f" during {followed.part!r}" if followed.part else ""


def _ended(job: Job, report: CheckReport, followed: Followed, head: str, got: str, to_do: str) -> Row:
    call = followed.call
    lines = [head]
    if got:
        lines.append(f"  got: {got}")
    if job.again:
        host = call.host.partition(" ")[0] if call is not None else ""
        chosen = f" --host {host}" if job.hosts and host in known_hosts() else ""
        lines.append(f"  to reproduce: {job.again}{chosen} --level {report.level} --seed {report.seed}")
        if to_do:
            lines.append(f"  to do: {to_do}")
    else:
        lines.append(f"  to reproduce: {job.hint}")
    where = (call.case, call.host, call.dtype) if call is not None else ("", "", "")
    return Row("process", *where, False, "\n".join(lines))
