"""Commands of opforge, each in a process of its own: what one prints as JSON, and how it ended."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FAULTS", "Common", "Ended", "option_words", "run_command"]

FAULTS = ("BuildError", "CheckFailure", "CorruptFileError", "InternalError", "MissingOperatorError", "SchemaError")
"""Errors that are findings about what a command was given; others say that it has nothing to say of that."""

_WORDS = 1500


def option_words(name: str, values: Iterable[object]) -> list[str]:
    """Write an option that is given once for each value."""
    return [word for value in values for word in (f"--{name}", str(value))]


@dataclass(frozen=True, kw_only=True)
class Common:
    """What most commands are run with.

    Attributes:
        packages: operator packages that a model uses.
        sizes: ``NAME=NUMBER`` of named dimensions.
        level: of the checks.
        duration: of the stress, as ``opforge stress`` takes it.
        threads: of a run; None = each engine's choice.
        seconds: that one command may take.
    """

    packages: Sequence[str] = ()
    sizes: Sequence[str] = ()
    level: str = "default"
    duration: str = "5"
    threads: int | None = None
    seconds: float = 1800.0

    def words(self, *names: str) -> list[str]:
        """Return these of ``package``, ``size``, ``threads`` as options of a command."""
        threads = [] if self.threads is None else [self.threads]
        values: Mapping[str, Sequence[object]] = {"package": self.packages, "size": self.sizes, "threads": threads}
        return [word for name in names for word in option_words(name, values[name])]

    def stress(self, target: str, out: Path) -> list[str]:
        """Return the words that stress a model or operators; sizes are of a .bin's named dimensions."""
        shapes = option_words("shapes", self.sizes if Path(target).suffix == ".bin" else ())
        return ["stress", target, "--duration", self.duration, *shapes, *self.words("package"), "--out", str(out)]


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        line: as one would type it.
        code: exit status; None where it took too long.
        seconds: of the clock.
        content: the JSON that it printed; ``{"error": ...}`` where it has no result.
        broken: the command itself is at fault: it crashed, hung, or printed no JSON.
    """

    line: str
    code: int | None
    seconds: float
    content: Any
    broken: bool = False

    @property
    def reason(self) -> str:
        """Why there is no result, on one line; "" where there is one."""
        if not (isinstance(self.content, dict) and "error" in self.content):
            return ""
        lines = str(self.content["error"].get("message", "")).splitlines()
        return " ".join(line.strip() for line in lines[:4]) or "it does not say why"

    @property
    def finding(self) -> bool:
        """Whether there is no result, for a reason that is about what the command was given, or that is ours."""
        return self.broken or (bool(self.reason) and self.content["error"].get("type") in FAULTS)


def run_command(words: Sequence[str], *, seconds: float, folder: Path | None = None) -> Ended:
    """Run ``opforge WORDS --json``; what is imported here is found there.

    Args:
        words: of the command, without ``--json``.
        seconds: that it may take.
        folder: which is left out of the paths of `Ended.line`.
    """
    prefix = f"{folder}/" if folder else ""
    line = shlex.join(["opforge", *(word.removeprefix(prefix) for word in words)])
    path = os.pathsep.join(entry for entry in sys.path if entry)
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "opforge", *words, "--json"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        error = {"error": {"message": f"it took longer than {seconds:g} s"}}
        return Ended(line, None, time.monotonic() - began, error, broken=True)
    took = time.monotonic() - began
    try:
        content = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip()[-_WORDS:] or "it printed no JSON"
        error = {"error": {"message": f"exit code {done.returncode}: {said}"}}
        return Ended(line, done.returncode, took, error, broken=True)
    return Ended(line, done.returncode, took, content, broken=done.returncode not in (0, 1, 2))
