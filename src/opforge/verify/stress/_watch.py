"""Watches the process of a stress run: samples its memory, shows how far it is, ends it, and sees how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opforge.errors import ArgumentError
from opforge.verify.stress._memory import resident_bytes, shared_out_bytes
from opforge.verify.stress._spec import FLIGHT, Spec

__all__ = ["Seen", "stopping_signals", "watch"]

_MOST_SAMPLES = 400
_SHORTEST_SAMPLE = 0.01
_GRACE = 10.0
"""Seconds that the process has to end by itself when it is asked to stop."""
_WORDS = 4000
"""Characters of its output that the report of a crash repeats."""


@dataclass
class Seen:
    """What was seen of the process.

    Attributes:
        messages: the last message of each kind.
        rates: (seconds, runs so far) at every sign of progress.
        memory: (seconds, RSS, PSS or None).
        calls: how many were finished at each row of ``memory``.
        ended: "done", "refused", "crashed", "hung" or "stopped" (before it had results).
        how: what is known of a crash or a hang.
        flight: the cases that callers were in when it ended so.
        interrupted: the signal that ended the run early; "" where none did.
        folder: its inputs and outputs; belongs to the caller.
    """

    folder: Path
    messages: dict[str, dict[str, Any]] = field(default_factory=dict)
    rates: list[tuple[float, int]] = field(default_factory=list)
    memory: list[tuple[float, int, int | None]] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    ended: str = ""
    how: str = ""
    flight: list[int] = field(default_factory=list)
    interrupted: str = ""

    @property
    def jobs(self) -> list[str]:
        """The names of the cases."""
        return list(self.messages.get("loaded", {}).get("jobs", []))


@contextlib.contextmanager
def stopping_signals() -> Iterator[list[str]]:
    """Collect SIGINT and SIGTERM instead of dying of them: the list holds the names of those that came."""
    came: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {
        number: signal.signal(number, lambda n, _frame: came.append(signal.Signals(n).name))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def watch(spec: Spec, came: list[str], show: Callable[[Mapping[str, Any]], None]) -> Iterator[Seen]:
    """Run the work in a process of its own and say what was seen; its folder lives as long as the block.

    Args:
        spec: what to run.
        came: names of signals that ask to stop; see `stopping_signals`.
        show: called with figures for a line of progress.
    """
    folder = Path(tempfile.mkdtemp(prefix="opforge-stress-"))
    try:
        yield _Watch(spec, folder, came, show).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Watch:
    def __init__(self, spec: Spec, folder: Path, came: list[str], show: Callable[[Mapping[str, Any]], None]) -> None:
        self._spec, self._came, self._show = spec, came, show
        self._seen = Seen(folder)
        self._pending = b""
        self._first_sample = 0.0

    def run(self) -> Seen:
        """Start the process and watch it to its end."""
        seen, spec = self._seen, self._spec
        reading, writing = os.pipe()
        output = seen.folder / "output"
        path = os.pathsep.join(entry for entry in sys.path if entry)  # what is imported here is found there
        with output.open("wb") as words:
            process = subprocess.Popen(
                [sys.executable, "-m", "opforge.verify.stress._worker", str(seen.folder), str(writing)],
                stdin=subprocess.PIPE,
                stdout=words,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C on the terminal is for us alone
            )
        os.close(writing)
        try:
            self._tell(process, spec.to_json())
            self._watch(process, reading)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            os.close(reading)
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.close()
        if not seen.ended:
            self._read_end(process.returncode, output)
        return seen

    def _tell(self, process: subprocess.Popen[bytes], line: str) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it may be gone; how it ended says why
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()

    def _watch(self, process: subprocess.Popen[bytes], reading: int) -> None:
        seen, spec = self._seen, self._spec
        every = max(_SHORTEST_SAMPLE, spec.seconds / _MOST_SAMPLES)
        began = moved = time.monotonic()
        next_sample, asked = 0.0, None
        while True:
            readable, _, _ = select.select([reading], [], [], every)
            now = time.monotonic()
            if readable:
                data = os.read(reading, 1 << 16)
                if not data:
                    return
                moved = now if self._read(data) else moved
            if "ready" in seen.messages and "done" not in seen.messages and now >= next_sample:
                next_sample = now + every
                self._sample(process.pid, now)
            if self._came and asked is None:
                seen.interrupted, asked = self._came[0], now
                self._tell(process, "stop")
            ready = "ready" in seen.messages
            if asked is not None and not ready:
                seen.ended = "stopped"
                return
            if ready and (now - moved > spec.patience or (asked is not None and now - asked > _GRACE)):
                self._end_hung(process)
                return
            self._show({"at": now - began, "memory": seen.memory[-1][1] if seen.memory else None, **self._progress()})

    def _progress(self) -> dict[str, Any]:
        found = dict(self._seen.messages.get("progress", {}))
        rates = self._seen.rates
        if len(rates) > 1:
            (t0, r0), (t1, r1) = rates[max(0, len(rates) - 6)], rates[-1]
            found["rate"] = (r1 - r0) / (t1 - t0) if t1 > t0 else 0.0
        return found

    def _read(self, data: bytes) -> bool:
        """Take in messages; whether they show that calls are finished."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        moved = False
        for line in lines:
            message = json.loads(line)
            event = message.pop("event")
            earlier = self._seen.messages.get("progress", {})
            if event == "progress":
                finished = (message["runs"], message["errors"])
                moved = moved or finished != (earlier.get("runs"), earlier.get("errors"))
                self._seen.rates.append((message["at"], message["runs"]))
            else:
                moved = True
            self._seen.messages[event] = message
        return moved

    def _sample(self, process: int, now: float) -> None:
        """Sample memory; PSS, which the kernel has to add up, every tenth time."""
        rows = self._seen.memory
        self._first_sample = now if not rows else self._first_sample
        resident = resident_bytes(process)
        if resident:
            shared = shared_out_bytes(process) if len(rows) % 10 == 0 else None
            rows.append((now - self._first_sample, resident, shared))
            self._seen.calls.append(sum(finished for _, finished in self._callers()))

    def _end_hung(self, process: subprocess.Popen[bytes]) -> None:
        """Let faulthandler write where its threads are, then end it."""
        seen = self._seen
        seen.ended, seen.flight = "hung", self._flight()
        process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        seen.how = (seen.folder / "output").read_text(encoding="utf-8", errors="replace")[-_WORDS:]

    def _read_end(self, status: int, output: Path) -> None:
        seen = self._seen
        for ended in ("done", "refused"):
            if ended in seen.messages:
                seen.ended = ended
                return
        words = output.read_text(encoding="utf-8", errors="replace")[-_WORDS:]
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        seen.ended, seen.how, seen.flight = "crashed", f"{name}\n{words}".strip(), self._flight()
        if not seen.jobs and status > 0:
            raise ArgumentError("the target cannot be prepared", where=self._spec.target, got=words.strip()[-_WORDS:])

    def _flight(self) -> list[int]:
        return [job for job, _ in self._callers() if job >= 0]

    def _callers(self) -> list[tuple[int, int]]:
        try:
            data = (self._seen.folder / "flight").read_bytes()
        except OSError:
            return []
        return list(FLIGHT.iter_unpack(data))
