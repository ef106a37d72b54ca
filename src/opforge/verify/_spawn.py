"""A process of our own beside this one, with a pipe to it: what checks and engines that may crash run in."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Any

__all__ = ["spawn"]


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
