"""The process that does the work of a stress run, so that a crash or a hang of it leaves a report all the same.

``python -m opforge.verify.stress._worker FOLDER DESCRIPTOR``: the spec is the first line of standard input, and a
second line, or its end, asks to stop. What happens is told as lines of JSON on the descriptor. FOLDER holds, for the
process that watches, the inputs of each case (``K.npz``) and which case each caller is in (``flight``).
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from opforge._environment import report_faults
from opforge.errors import OpforgeError
from opforge.verify._spawn import end_with_parent
from opforge.verify.stress._calls import Results, Tally, call_alone, call_together, first_results
from opforge.verify.stress._histogram import Histogram
from opforge.verify.stress._spec import FLIGHT, Spec
from opforge.verify.stress._work import Job, Work, prepare, storable

__all__ = ["PERCENTILES", "main"]

PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)
_ALONE_SHARE = 0.2
_TELL_EVERY = 0.2
_RECHECK_SECONDS = 1.0
_MOST_KEPT = 1 << 30
"""Bytes of inputs that are written for the report of a crash."""
_SWITCH = 0.0005
"""Seconds after which Python hands its lock to another caller; its usual 5 ms would be most of a short call's time."""


class _Watched:
    """What the watching process sees: messages, and the case that each caller is in."""

    def __init__(self, folder: Path, descriptor: int, callers: int) -> None:
        self._out = os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        path = folder / "flight"
        path.write_bytes(FLIGHT.pack(-1, 0) * callers)
        self._finished = [0] * callers
        with path.open("r+b") as file:
            self._flight = mmap.mmap(file.fileno(), FLIGHT.size * callers)
        self.stop = threading.Event()
        self.folder = folder

    def tell(self, event: str, **content: object) -> None:
        """Send one message; a watcher that is gone is a reason to stop."""
        try:
            with self._lock:
                self._out.write(json.dumps({"event": event, **content}) + "\n")
        except (OSError, ValueError):
            self.stop.set()

    def mark(self, caller: int, job: int) -> None:
        """Note which case a caller is in; -1 is none: it has finished one."""
        self._finished[caller] += job < 0
        FLIGHT.pack_into(self._flight, caller * FLIGHT.size, job, self._finished[caller])

    def alone(self, job: int) -> None:
        """Note which case the only caller is in."""
        self.mark(0, job)


def main(folder: str, descriptor: str) -> None:
    """Do the work; see the module."""
    faulthandler.enable()
    end_with_parent()
    report_faults()
    spec = Spec.from_json(sys.stdin.readline())
    watched = _Watched(Path(folder), int(descriptor), max(1, spec.threads))
    threading.Thread(target=_await_stop, args=(watched.stop,), daemon=True).start()
    try:
        began = time.perf_counter()
        work = prepare(spec)
        _keep_inputs(work, watched)
        seconds = time.perf_counter() - began
        names, ways = [job.name for job in work.jobs], [job.reproduce for job in work.jobs]
        watched.tell("loaded", seconds=seconds, jobs=names, reproduce=ways)
        _run(spec, work, watched)
    except OpforgeError as problem:
        watched.tell("refused", kind=type(problem).__name__, text=str(problem))


def _await_stop(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


def _keep_inputs(work: Work, watched: _Watched) -> None:
    room = _MOST_KEPT
    for k, job in enumerate(work.jobs):
        room -= sum(value.nbytes for value in job.inputs.values())
        if room < 0:
            work.left_out["inputs on disk"] = f"those from case {job.name} on are too large to be kept for a failure"
            return
        np.savez(watched.folder / f"{k}.npz", **storable(job.inputs))  # type: ignore[arg-type]


def _run(spec: Spec, work: Work, watched: _Watched) -> None:
    expected, problems = first_results(work.jobs, watched.alone)
    failing = {k: problem for k, problem in enumerate(problems) if problem}
    if len(failing) == len(work.jobs):
        watched.tell("refused", kind="ArgumentError", text=f"no case runs: {problems[0]}")
        return
    if work.optional:
        work.left_out.update({work.jobs[k].name: problem.splitlines()[0] for k, problem in failing.items()})
    order = [k for k in range(len(work.jobs)) if not (work.optional and k in failing)]
    given = [_fingerprint(job) for job in work.jobs]
    watched.tell("ready", order=order, left_out=work.left_out)
    found = _parts(spec, work.jobs, expected, order, watched)
    written = [job.name for job, before in zip(work.jobs, given, strict=True) if _fingerprint(job) != before]
    watched.tell("done", **found, written=written)


def _parts(
    spec: Spec, jobs: Sequence[Job], expected: Sequence[Results | None], order: Sequence[int], watched: _Watched
) -> dict[str, Any]:
    """Call from one thread, then from several; where only that made results differ, once more from one."""
    alone, together, again = Tally(), Tally(), Tally()
    tallies = [Tally() for _ in range(spec.threads if spec.threads > 1 else 0)]
    began = time.monotonic()
    teller = _Teller(watched, began, [alone, *tallies])
    share = _ALONE_SHARE if tallies else 1.0
    call_alone(jobs, expected, order, _until(watched, began + spec.seconds * share), alone, watched.alone)
    alone_ends = time.monotonic()
    if tallies:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH)
        call_together(jobs, expected, order, _until(watched, began + spec.seconds), tallies, watched.mark)
        sys.setswitchinterval(usual)
    ends = time.monotonic()
    teller.end()
    for tally in tallies:
        together.add(tally)
    if together.mismatches and not alone.mismatches:
        # Whether the same cases differ alone as well tells a race from a result that is never twice the same.
        go_on = _until(watched, ends + _RECHECK_SECONDS, stoppable=False)
        call_alone(jobs, expected, sorted(together.mismatches), go_on, again, watched.alone)
    return {
        "seconds": {"alone": alone_ends - began, "together": ends - alone_ends},
        "alone": _summary(alone),
        "together": _summary(together),
        "again": _summary(again),
    }


def _until(watched: _Watched, end: float, *, stoppable: bool = True) -> Callable[[bool], bool]:
    return lambda first: (first or time.monotonic() < end) and not (stoppable and watched.stop.is_set())


def _fingerprint(job: Job) -> int:
    return hash(tuple(value.tobytes() for value in job.inputs.values()))


class _Teller:
    """A thread that tells, a few times a second, how far the callers are."""

    def __init__(self, watched: _Watched, began: float, tallies: Sequence[Tally]) -> None:
        self._watched, self._began, self._tallies = watched, began, tallies
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def _tell(self) -> None:
        while not self._over.wait(_TELL_EVERY):
            runs = sum(t.latency.total for t in self._tallies)
            self._watched.tell(
                "progress",
                at=time.monotonic() - self._began,
                runs=runs,
                errors=sum(t.error_count for t in self._tallies),
                mismatches=sum(t.mismatch_count for t in self._tallies),
            )

    def end(self) -> None:
        """Stop telling."""
        self._over.set()
        self._thread.join()


def _summary(tally: Tally) -> dict[str, Any]:
    """Return what a tally saw as plain data, times in milliseconds."""
    return {
        "runs": tally.latency.total,
        "latency_ms": _latency(tally.latency),
        "steps_ms": _steps(tally.latency),
        "cases": {
            job: {"runs": h.total, "p50": h.percentile(50) / 1e6, "p99": h.percentile(99) / 1e6, "max": h.max / 1e6}
            for job, h in sorted(tally.by_job.items())
        },
        "errors": tally.errors,
        "mismatches": tally.mismatches,
        "first": [asdict(failure) for failure in tally.first.values()],
    }


def _latency(histogram: Histogram) -> Mapping[str, float]:
    if not histogram.total:
        return {}
    named = {f"p{p:g}": histogram.percentile(p) / 1e6 for p in PERCENTILES}
    return {**named, "max": histogram.max / 1e6, "mean": histogram.mean / 1e6}


def _steps(histogram: Histogram, most: int = 60) -> list[list[float]]:
    """Return (milliseconds, share of calls that took no longer) at up to ``most`` places, for a curve."""
    rows, seen = [], 0
    for value, count in histogram.steps():
        seen += count
        rows.append([value / 1e6, seen / histogram.total])
    if len(rows) <= most:
        return rows
    # Even in the share among the usual calls, and every step of the slowest ones.
    kept, last = [], 0.0
    for row in rows:
        nines = 1 - row[1]
        if row[1] - last >= 1 / most or nines < 0.01:
            kept.append(row)
            last = row[1]
    return kept[:most] + rows[-1:]


if __name__ == "__main__":
    main(*sys.argv[1:])
