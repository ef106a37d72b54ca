"""A process of our own beside this one, with a pipe to it: what checks and engines that may crash run in."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any, Final

__all__ = ["end_with_parent", "spawn"]

_PR_SET_PDEATHSIG: Final = 1


def spawn(module: str, log: IO[bytes], python_path: str) -> tuple[subprocess.Popen[bytes], Connection[Any, Any]]:
    """Start a module that takes its end of the pipe as a number; what it prints goes to the log."""
    pipe, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, "PYTHONPATH": python_path},
    )
    theirs.close()
    return process, pipe


def end_with_parent() -> None:
    """Have the system end this process when the thread that started it ends, however that ends.

    A process that waits for words of another one notices its end by itself; one that is in a kernel which never comes
    back does not.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
