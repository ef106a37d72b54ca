"""The steps of CI, of which some run side by side; says last what failed. `.ci/run` calls it.

Many steps keep one core busy: a compiler's setup, mypy, tests of one process. Two lanes of steps at once keep both.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from last_words import LIMIT, of_log
from steady import UNSTEADY

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "ci"

Stage = tuple[tuple[str, ...], ...]
STAGES: tuple[Stage, ...] = (
    (("tools",),),
    (("environment",), ("native",)),
    (("ready",),),
    (("fuzz", "sanitize", "cross"), ("lint", "engines", "executorch", "cuda")),
    (("test",),),
)
"""Targets of make. Stages come one after the other; the lanes of a stage run at once, each of steps in their order."""


@dataclass
class Step:
    """How one target went.

    Attributes:
        name: of the target.
        log: its file.
        code: exit status; None while it runs.
        seconds: of the clock.
        cpu: seconds of all cores.
    """

    name: str
    log: Path
    code: int | None = None
    seconds: float = 0.0
    cpu: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def row(self) -> str:
        """Return a line of the table."""
        ended = {0: "ok", None: "not ended"}.get(self.code, "FAILED")
        seconds = self.seconds or time.monotonic() - self.began
        return f"make {self.name:12s} {ended:9s} {seconds:5.0f} s, {self.cpu:5.0f} s of CPU"


class Run:
    """All steps of one run of CI."""

    def __init__(self, command: Sequence[str]) -> None:
        """Take the words before a target's name."""
        self.command = command
        self.steps: list[Step] = []
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._print = threading.Lock()
        self._start = threading.Lock()

    def stage(self, lanes: Stage) -> bool:
        """Run the lanes of one stage; whether all went well."""
        with ThreadPoolExecutor(len(lanes)) as pool:
            return all(list(pool.map(lambda lane: self._lane(lane, shown=len(lanes) == 1), lanes)))

    def end(self) -> None:
        """End what runs, with all that it started, and let nothing more start."""
        self._start.acquire()
        for process in list(self._running.values()):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGTERM)

    def silence(self) -> None:
        """Let no lane say anything more; what was ended would tell of it behind the last words."""
        self._print.acquire()

    def summary(self) -> str:
        """Return the table, unsteady tests and, where a step failed, what its log says, within `LIMIT` characters."""
        rows = ["", *(step.row() for step in self.steps)]
        logs = {step.name: step.log.read_text(encoding="utf-8", errors="replace") for step in self.steps}
        rows += [line for text in logs.values() for line in text.splitlines() if line.startswith(UNSTEADY)]
        bad = [step for step in self.steps if step.code != 0]
        for step in bad:
            text = logs[step.name]
            rows += [
                "",
                f"make {step.name} {'FAILED' if step.code else 'had not ended'} ({step.log.name} in build/ci):",
            ]
            rows += [of_log(text, LIMIT // len(bad))]
        return "\n".join(rows)

    def _lane(self, names: Sequence[str], *, shown: bool) -> bool:
        return all(self._step(name, shown=shown) for name in names)

    def _step(self, name: str, *, shown: bool) -> bool:
        step = Step(name, LOGS / f"{name}.log")
        step.log.write_bytes(b"")  # whoever sees the step may read it
        self.steps.append(step)
        self._say(
            f"== make {name}\n".encode() if shown else f"== make {name} (its output comes when it ends)\n".encode()
        )
        with step.log.open("wb") as log:
            with self._start:
                process = subprocess.Popen(
                    [*self.command, name],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running[name] = process
            assert process.stdout is not None
            while piece := os.read(process.stdout.fileno(), 1 << 16):
                log.write(piece)
                log.flush()
                if shown:
                    self._say(piece)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        del self._running[name]
        step.code, step.seconds = process.returncode, time.monotonic() - step.began
        step.cpu = usage.ru_utime + usage.ru_stime
        self._say((b"" if shown else step.log.read_bytes()) + f"== {step.row()}\n".encode())
        return step.code == 0

    def _say(self, words: bytes) -> None:
        with self._print:
            sys.stdout.buffer.write(words)
            sys.stdout.buffer.flush()


def main(stages: Sequence[Stage] = STAGES, command: Sequence[str] = ("make", "--no-print-directory")) -> int:
    """Run the stages until one fails; 0 when all went well."""
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONUNBUFFERED"] = "1"  # what programs say stays in order
    run = Run(command)

    def ended(number: int, _: FrameType | None) -> None:
        for other in (signal.SIGTERM, signal.SIGINT):
            signal.signal(other, signal.SIG_IGN)  # a second one would wait for what the first one holds
        run.silence()
        summary = run.summary()
        run.end()
        print(f"{summary}\nended by {signal.Signals(number).name}", flush=True)
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ended)
    good = all(run.stage(lanes) for lanes in stages)
    print(run.summary(), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
