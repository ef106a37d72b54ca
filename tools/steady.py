"""Run pytest; tests that fail among the others are run once more, alone, and what passes then is told as unsteady.

A busy machine must not decide whether a change is good, and a race in a test must not go unseen: a test that fails
alone too is a failure, more than `AT_MOST` are not run again, and every unsteady one is named with what it said.
OPFORGE_FORBID_UNSTEADY=1 runs nothing again: where tests draw anew in each run, the second says nothing of the first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from last_words import MARK, of_reports

__all__ = ["AT_MOST", "UNSTEADY", "Tests", "run"]

ROOT = Path(__file__).resolve().parent.parent
AT_MOST = 3
"""Tests that may be unsteady in one run; more of them say that something is wrong."""
UNSTEADY = "unsteady (failed among the others, passed alone): "
"""Begins the line of each."""


@dataclass(frozen=True)
class Tests:
    """How a run of pytest ended.

    Attributes:
        code: its exit status; 0 where all that failed passed alone.
        failed: what failed, in few words; "" where nothing did, or where pytest itself did not get that far.
        unsteady: names of tests that failed among the others only.
    """

    code: int
    failed: str
    unsteady: tuple[str, ...]


def run(
    arguments: Iterable[str | Path],
    *,
    environment: Mapping[str, str],
    report: Path | None = None,
    root: Path = ROOT,
) -> Tests:
    """Run pytest in the project's root; print which tests are unsteady, and what they said.

    Args:
        arguments: of pytest; the second run gets only the names of tests, which run in one process.
        environment: of both runs.
        report: where JUnit XML of the first run goes.
        root: where pytest runs, and what names of tests begin from.
    """
    with tempfile.TemporaryDirectory(prefix="opforge-tests-") as folder:
        first, second, cache = (Path(folder) / name for name in ("first.xml", "second.xml", "cache"))
        first = report or first
        given = [str(argument) for argument in arguments]
        kept = ["-o", f"cache_dir={cache}", f"--rootdir={root}"]
        code = _pytest([*given, f"--junitxml={first}", *kept], environment, root)
        names = _failed(cache)
        forbidden = environment.get("OPFORGE_FORBID_UNSTEADY") == "1"
        if code != 1 or forbidden or not 0 < len(names) <= AT_MOST:
            return Tests(code, of_reports([first]) if code else "", ())
        print(f"\n{len(names)} failed; run again, alone:", flush=True)
        again = _pytest([*names, f"--junitxml={second}", *kept, "-n", "0"], environment, root)
        bad = set(_failed(cache)) if again == 1 else set(names) if again else set()
        unsteady = tuple(name for name in names if name not in bad)
        if unsteady:
            said = of_reports([first]).replace(MARK, "what was said among the others:", 1)
            print("\n".join(["", *(UNSTEADY + name for name in unsteady), said]), flush=True)
        return Tests(again, of_reports([second]) or of_reports([first]) if again else "", unsteady)


def _pytest(arguments: list[str], environment: Mapping[str, str], root: Path) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=root, env=dict(environment), check=False).returncode


def _failed(cache: Path) -> list[str]:
    """Return the names of the tests that failed in the last run with this cache."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments."""
    return run(arguments, environment=os.environ).code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
