"""Runs the cases of an operator in another process, which a faulty kernel may end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opforge.build import abi
from opforge.schema import Operator
from opforge.verify._declared import import_paths, target_of
from opforge.verify._signals import ended

__all__ = ["Outcome", "run_isolated"]

_SECONDS = 600.0


@dataclass(frozen=True)
class Outcome:
    """How the process ended.

    Attributes:
        code: its exit status; negative for a signal.
        events: what it announced, in order.
        words: what else it wrote, with the event that came before.
    """

    code: int
    events: tuple[dict[str, Any], ...]
    words: tuple[tuple[dict[str, Any], str], ...]

    @property
    def errors(self) -> str:
        """What it wrote besides events, whole."""
        return "\n".join(text for _, text in self.words)

    @property
    def last(self) -> dict[str, Any]:
        """The call that was under way at the end."""
        return next((event for event in reversed(self.events) if event["event"] == "call"), {})

    @property
    def ending(self) -> str:
        """The end in words: a signal's name, or a status."""
        return ended(self.code)


def run_isolated(
    operator: Operator,
    what: str,
    seed: int,
    *,
    drawn: int = 0,
    library: Path | None = None,
    device: int = abi.DEVICE_CPU,
    derived: str = "",
    narrow: bool = False,
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Outcome:
    """Run one kind of job.

    Args:
        operator: whose cases are run.
        what: "cases", "threads" or "values"; see `opforge.verify._child`.
        seed: of the cases.
        drawn: number of cases drawn from the schema besides.
        library: kernel library instead of the operator's own.
        derived: name of the gradient operator of its that is called in its place.
        narrow: only small cases, and only in f32, where that is declared: the kernels of all dtypes are one template.
        device: whose kernels of it, of a device that reads the host's memory.
        environment: added to this process's.
        prefix: of the command.

    Raises:
        UnsupportedError: the operator is declared where another process cannot find it.
    """
    job = {
        "target": target_of(operator),
        "operator": [operator.domain, operator.name, operator.since_version],
        "what": what,
        "seed": seed,
        "drawn": drawn,
        "library": None if library is None else str(library),
        "device": device,
        "derived": derived,
        "narrow": narrow,
    }
    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job), encoding="utf-8")
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "opforge.verify._child", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": import_paths(), **(environment or {})},
        )
    events: list[dict[str, Any]] = []
    words: list[tuple[dict[str, Any], str]] = []
    for line in done.stdout.splitlines():
        if line.startswith('{"event"'):
            events.append(json.loads(line))
            continue
        current = events[-1] if events else {}
        if words and words[-1][0] is current:
            words[-1] = (current, f"{words[-1][1]}\n{line}")
        else:
            words.append((current, line))
    return Outcome(done.returncode, tuple(events), tuple(words))
