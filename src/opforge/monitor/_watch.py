"""Watching a session of a deployed model: counts, latency, errors, memory, and operators of one run in so many."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from weakref import WeakSet

from opforge._files import whole_file
from opforge.bin.native import crc32c
from opforge.bin.session import EventKind, Run, Session
from opforge.bin.table import read_table
from opforge.errors import ArgumentError
from opforge.monitor._log import append
from opforge.monitor._metrics import METRICS, Family, Sample, buckets_of, merged, text_of
from opforge.profiling._runtime import calls_of
from opforge.verify.stress import Histogram, resident_bytes

__all__ = ["Monitor", "families", "fingerprint", "metrics_text", "watch", "write_textfile"]

_DIGITS = 2
"""Of latencies: 1 %; a histogram takes 37 kB."""
_SAMPLED = 256
"""Runs of a window whose nodes are timed, at most; a busy session times fewer than one in ``every``."""
_MOST_EVENTS = 1 << 18
_MOST_SHAPES = 32
_NODES = 16
"""Nodes of a line of the log, the dearest; operators are all there."""
_PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9))

_logger = logging.getLogger(__name__)
_watching: WeakSet[Monitor] = WeakSet()
_names = threading.Lock()


class Monitor:
    """What is known of a session since it is watched; ``watch`` makes one, ``close`` ends it."""

    def __init__(self, session: Session, name: str, log: Path | None, every: int) -> None:
        """Use ``watch``."""
        self.session = session
        self.name = name
        self.log = log
        self._fingerprint = fingerprint(session.path)
        self._every = self._now_every = every
        self._kinds = session.node_times()
        self._operators = [f"{kind.domain}::{kind.op}" if kind.domain else kind.op for kind in self._kinds]
        self._lock = threading.Lock()
        self._rolling = threading.Lock()
        self._total, self._errors = Histogram(_DIGITS), Counter[str]()
        self._runs_now, self._errors_now, self._shapes = Histogram(_DIGITS), Counter[str](), Counter[Any]()
        self._sampled = 0
        self._seconds: dict[str, float] = {}
        self._stop = threading.Event()
        self._writer: threading.Thread | None = None
        self._closed = False
        self._begun, self._since = time.time(), time.monotonic()
        session.run_through(self._around)
        self._sample()

    def _around(self, run: Run) -> Run:
        clock, lock, every = time.perf_counter_ns, self._lock, self._every

        def watched(inputs: Mapping[str, Any]) -> dict[str, Any]:
            began = clock()
            try:
                results = run(inputs)
            except Exception as problem:
                with lock:
                    self._errors_now[type(problem).__name__] += 1
                raise
            took = clock() - began
            with lock:
                now = self._runs_now
                if now.total % every == 0:
                    self._note_shapes(inputs)
                now.record(took)
            return results

        return watched

    def _note_shapes(self, inputs: Mapping[str, Any]) -> None:
        key = tuple((name, value.shape) for name, value in inputs.items() if hasattr(value, "shape"))
        if key in self._shapes or len(self._shapes) < _MOST_SHAPES:
            self._shapes[key] += 1

    def _sample(self) -> None:
        """Begin to time the nodes of one run in so many, from zero."""
        most = min(_MOST_EVENTS, (len(self._kinds) + 2) * 2 * _SAMPLED)
        self.session.profile_events(most, every=self._now_every)

    def roll(self) -> dict[str, Any]:
        """End the window, append it to the log, and begin the next; returns the line.

        ``watch`` does it each ``interval`` seconds; without an interval it is the caller's to do.
        """
        with self._rolling:
            events, _ = self.session.events()
            with self._lock:
                runs, errors, shapes = self._runs_now, self._errors_now, self._shapes
                self._runs_now, self._errors_now, self._shapes = Histogram(_DIGITS), Counter(), Counter()
                self._total.add(runs)
                self._errors.update(errors)
            now = time.monotonic()
            seconds, self._since = now - self._since, now
            # Aimed at as many sampled runs as a window keeps, so that they are spread over all of it.
            self._now_every = max(self._every, -(-runs.total // _SAMPLED))
            if not self._closed:
                self._sample()
            calls = calls_of(events, self._kinds)
            whole = events["run"][events["kind"] == EventKind.RUN]
            operators: dict[str, float] = {}
            for one in calls:
                name = self._operators[one.node]
                operators[name] = operators.get(name, 0.0) + one.run_ns
            with self._lock:
                for one in calls:
                    name = self._operators[one.node]
                    self._seconds[name] = self._seconds.get(name, 0.0) + float(one.samples.sum()) / 1e9
                self._sampled += len(whole)
            line = {
                "model": self.name, "process": os.getpid(), "begun": self._begun, "path": str(self.session.path),
                "fingerprint": self._fingerprint, "version": _version(), "threads": self.session.threads,
                "at": time.time(), "seconds": seconds, "runs": runs.total, "errors": dict(errors),
                "latency_ns": _latency(runs), "arena_bytes": self.session.statistics["arena_bytes"],
                "resident_bytes": resident_bytes(),
                "shapes": [{"inputs": {n: list(s) for n, s in key}, "runs": count}
                           for key, count in shapes.most_common()],
                "sampled_runs": len(whole), "operators": operators,
                "nodes": [
                    {"name": self._kinds[one.node].output, "operator": self._operators[one.node],
                     "run_ns": one.run_ns, "calls": len(one.samples)}
                    for one in sorted(calls, key=lambda one: -one.run_ns)[:_NODES]
                ],
            }  # fmt: skip
            if self.log is not None:
                append(self.log, line)
            return line

    def families(self) -> list[Family]:
        """Return the metrics; operators are those of the windows that ended."""
        labels = {"model": self.name, "process": str(os.getpid())}
        with self._lock:
            runs, errors = Histogram(_DIGITS), self._errors + self._errors_now
            runs.add(self._total)
            runs.add(self._runs_now)
            seconds, sampled = dict(self._seconds), self._sampled
        one: dict[str, list[Sample]] = {
            "opforge_runs_total": [Sample("", labels, runs.total)],
            "opforge_errors_total": [Sample("", {**labels, "type": kind}, n) for kind, n in errors.items()],
            "opforge_run_seconds": buckets_of(runs, labels),
            "opforge_sampled_runs_total": [Sample("", labels, sampled)],
            "opforge_operator_seconds_total": [Sample("", {**labels, "operator": k}, v) for k, v in seconds.items()],
            "opforge_arena_bytes": [Sample("", labels, self.session.statistics["arena_bytes"])],
            "opforge_resident_bytes": [Sample("", labels, resident_bytes() or 0)],
            "opforge_model_info": [
                Sample("", {**labels, "fingerprint": self._fingerprint, "version": _version()}, 1),
            ],
        }  # fmt: skip
        return [Family(METRICS[name], samples) for name, samples in one.items()]

    def start(self, interval: float) -> None:
        """Roll every so many seconds, in a thread that ends with the process."""

        def run() -> None:
            while not self._stop.wait(interval):
                try:
                    self.roll()
                except OSError as problem:  # a full disk must not end what is served
                    _logger.warning("a line of the log of %s is lost: %s", self.name, problem)

        self._writer = threading.Thread(target=run, name=f"opforge-monitor-{self.name}", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Roll what was not rolled yet, and give the session its plain ``run`` back. Closing twice is no fault."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        if self._writer is not None:
            self._writer.join()
        self.session.run_through(None)
        if self._runs_now.total or self._errors_now:
            self.roll()
        self.session.profile(on=False)
        with _names:
            _watching.discard(self)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(
    session: Session,
    *,
    name: str | None = None,
    log: str | os.PathLike[str] | None = None,
    interval: float | None = 10.0,
    every: int = 64,
) -> Monitor:
    """Watch every run of a session from now on, until the monitor is closed.

    The session is the one that the program already runs: its ``run`` is replaced, and is the plain method again
    afterwards. A process that forks watches in its children, for threads do not follow.

    Args:
        session: an open model.
        name: of the model in metrics and log; None = the file's name. Another session of that name in this process
            gets a number behind it.
        log: file to which a line is appended each ``interval``; several processes may share one.
        interval: seconds of a window; None = the program calls ``roll`` itself.
        every: one run in so many has its nodes timed and its shapes noted; 1 = all.

    Raises:
        ArgumentError: the session is watched already, or an option is wrong.
    """
    if every < 1:
        raise ArgumentError("no run would be sampled", where="every", expected=">= 1", got=every)
    if interval is not None and not interval > 0:
        raise ArgumentError("a window needs time", where="interval", expected="> 0 seconds, or None", got=interval)
    path = None if log is None else Path(log)
    if path is not None and not path.absolute().parent.is_dir():
        raise ArgumentError("there is no such folder", where="log", got=str(path.parent))
    with _names:
        taken = {monitor.name for monitor in _watching}
        wanted = session.path.stem if name is None else name
        free = next(text for k in range(len(taken) + 1) if (text := f"{wanted}-{k + 1}" if k else wanted) not in taken)
        monitor = Monitor(session, free, path, every)
        _watching.add(monitor)
    if interval is not None:
        monitor.start(interval)
    return monitor


def families(*monitors: Monitor) -> list[Family]:
    """Join the metrics of these monitors; without any, of all in this process."""
    with _names:
        chosen = monitors or tuple(sorted(_watching, key=lambda monitor: monitor.name))
    return merged(monitor.families() for monitor in chosen)


def metrics_text(*monitors: Monitor) -> str:
    """Write the metrics of these monitors, or of all in this process, in Prometheus' text format."""
    return text_of(families(*monitors))


def write_textfile(folder: str | os.PathLike[str], *monitors: Monitor) -> Path:
    """Write the metrics as a file for the textfile collector of Prometheus' node exporter; returns its path.

    Each process has a file of its own, which appears whole.
    """
    path = Path(folder) / f"opforge-{os.getpid()}.prom"
    with whole_file(path) as temporary:
        temporary.write_text(metrics_text(*monitors), encoding="utf-8")
    return path


def _latency(histogram: Histogram) -> dict[str, float]:
    if not histogram.total:
        return {}
    found: dict[str, float] = {name: histogram.percentile(percent) for name, percent in _PERCENTILES}
    return {**found, "max": histogram.max, "mean": histogram.mean}


def fingerprint(path: Path) -> str:
    """Tell files apart by the checksums of their sections, without reading the weights."""
    return f"{crc32c(str([(s.name, s.size, s.crc) for s in read_table(path).sections]).encode()):08x}"


def _version() -> str:
    from opforge import __version__

    return __version__
