"""What a benchmark case is, and how one child process measures it."""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

OURS = "opforge"

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30)}
"""Environment in which glibc keeps what is freed: results of some MB come from pages that are there, as in a loop that
trains, whatever was allocated before. Fresh pages for 4 MB take 100 us, a third of what GELU takes there."""

Measured = dict[str, dict[str, float]]
"""What one process measured: part of the case ("" where it has none) -> participant -> value."""


@dataclass
class Prepared:
    """Either things to call in turn, or figures measured once per process; all by name, opforge among them."""

    runs: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One row of the bench.

    Attributes:
        name: unique.
        metric: "time" (seconds a call), or another word for values.
        threads: of every participant.
        prepare: makes everything ready, compares the results of all participants (raises where they differ). It may
            give several parts by name, each a row of its own, where a process of its own would take too long.
        limits: peer (or ``part/peer``) -> asked ratio; ratio = peer / ours, above 1 means opforge is better.
        rounds: fresh processes.
        needs: what must be importable.
        environment: variables of the processes that measure it.
        group: name of the file that the case is in (set by `all_cases`).
    """

    name: str
    prepare: Callable[[int], Prepared | Mapping[str, Prepared]]
    limits: Mapping[str, float]
    metric: str = "time"
    threads: int = 1
    rounds: int = 7
    needs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    group: str = ""


def all_cases() -> list[Case]:
    """Return the cases of every file in `cases`, found by existing."""
    found: list[Case] = []
    for path in sorted((Path(__file__).parent / "cases").glob("*.py")):
        if not path.stem.startswith("_"):
            cases = import_module(f"benchmarks.cases.{path.stem}").CASES
            found += [replace(case, group=path.stem) for case in cases]
    return found


def measure(case: Case, seed: int) -> Measured:
    """Measure one round in this process: medians of interleaved calls, or the case's values."""
    os.environ["OPFORGE_NUM_THREADS"] = str(case.threads)
    prepared = case.prepare(case.threads)
    if isinstance(prepared, Prepared):
        return {"": _measure(prepared, case.threads, seed, 1.5)}
    return {name: _measure(part, case.threads, seed, 0.6) for name, part in prepared.items()}


def _measure(prepared: Prepared, threads: int, seed: int, seconds: float) -> dict[str, float]:
    if prepared.values:
        return dict(prepared.values)
    order = random.Random(seed)
    inner = {name: _calibrate(run) for name, run in prepared.runs.items()}
    times: dict[str, list[float]] = {name: [] for name in prepared.runs}
    gc.collect()
    gc.disable()  # as timeit does: TensorFlow's tensors alone would set it off every few calls
    budget = time.perf_counter() + seconds
    while min(map(len, times.values())) < 5 or (time.perf_counter() < budget and min(map(len, times.values())) < 31):
        names = list(prepared.runs)
        order.shuffle(names)
        for name in names:
            run, count = prepared.runs[name], inner[name]
            if threads > 1:
                _rest()
                run()
            started = time.perf_counter()
            for _ in range(count):
                run()
            times[name].append((time.perf_counter() - started) / count)
    gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


def _rest(longest: float = 0.5) -> None:
    """Wait until no thread of this process is busy: those of the others spin on after their last run.

    ONNX Runtime's go on for some 30 ms, and whoever runs then has one core less. It ends after `longest` seconds.
    """
    until = time.perf_counter() + longest
    while time.perf_counter() < until:
        started, busy = time.perf_counter(), time.process_time()
        time.sleep(0.01)
        if time.process_time() - busy < 0.1 * (time.perf_counter() - started):
            return


def _calibrate(run: Callable[[], Any]) -> int:
    """Return how many calls take about 5 ms, after a warm-up."""
    for _ in range(3):
        run()
    started = time.perf_counter()
    run()
    once = max(time.perf_counter() - started, 1e-7)
    return max(1, min(20000, round(0.005 / once)))
