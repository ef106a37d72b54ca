"""Time the same inputs in several engines, in turn and in shuffled order, so that all meet the same machine."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from opforge.bin.native import fault_of
from opforge.engines import TensorInfo
from opforge.errors import ArgumentError, OpforgeError
from opforge.verify._engines import find_engine, reasons
from opforge.verify._inputs import flat_values
from opforge.verify._measures import measure
from opforge.verify._runs import trial

__all__ = ["EngineTime", "Timing", "time_engines"]

_REST = 0.02
"""Seconds before a block of several threads: those of the engine before spin on for a while."""


@dataclass(frozen=True)
class EngineTime:
    """Times of one engine in milliseconds; ``ratio`` is the first engine's time over its own: above 1 is faster."""

    engine: str
    load_ms: float
    median_ms: float
    best_ms: float
    ratio: float
    max_abs: float


@dataclass
class Timing:
    """What :func:`time_engines` found.

    Attributes:
        rows: one per engine, in the order asked for.
        rounds: blocks that the medians are over.
        skipped: engines that were left out, with the reason.
    """

    rows: list[EngineTime] = field(default_factory=list)
    rounds: int = 0
    skipped: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"rounds": self.rounds, "rows": [asdict(row) for row in self.rows], "skipped": self.skipped}


def time_engines(
    model: Path,
    given: Callable[[Sequence[TensorInfo]], Mapping[str, Any]],
    engines: Sequence[str],
    *,
    rounds: int = 15,
    threads: int | None = None,
    optional: Collection[str] = (),
    packages: Sequence[str] = (),
) -> Timing:
    """Load the model in each engine and time its runs in turn.

    Args:
        model: the file.
        given: makes the inputs from an engine's declarations.
        engines: names; the first is what the ratios are to.
        rounds: blocks per engine, each of about 10 ms.
        threads: threads per engine; None leaves it to each.
        optional: engines that are left out where they cannot run the model; other people's are tried in a process
            of their own before, so that one that crashes is left out too.
        packages: operator packages for those processes.

    Raises:
        ArgumentError: no engine is left.
    """
    result = Timing(rounds=rounds)
    runs: dict[str, Callable[[], Any]] = {}
    loads: dict[str, float] = {}
    outputs: dict[str, Mapping[str, Any]] = {}
    inputs: Mapping[str, Any] | None = None
    for name in engines:
        try:
            trial(name, model, given if inputs is None else inputs, threads, packages, tried=name in optional)
            found = find_engine(name)
            with fault_of(f"{name} loads {model.name}"):
                started = time.perf_counter()
                loaded = found.load(model, threads=threads)
                loads[name] = (time.perf_counter() - started) * 1e3
        except OpforgeError as problem:
            if name not in optional:
                raise
            result.skipped[name] = str(problem)
            continue
        inputs = given(loaded.inputs) if inputs is None else inputs  # wrong ones are wrong for every engine
        try:
            with fault_of(f"{name} runs {model.name}"):
                outputs[name] = flat_values(loaded.run(inputs))
        except OpforgeError as problem:
            if name not in optional:
                raise
            result.skipped[name] = str(problem)
            continue
        runs[name] = _bound(loaded.run, inputs)
    if not runs:
        raise ArgumentError("no engine runs the model", where=str(model), got=reasons(result.skipped))
    with fault_of(f"{' or '.join(runs)} runs {model.name}"):
        times = _interleaved(runs, rounds, threads)
    first = median(times[next(iter(runs))])
    for name, values in times.items():
        middle = median(values)
        error = _furthest(outputs[name], outputs[next(iter(runs))])
        result.rows.append(
            EngineTime(name, round(loads[name], 3), middle * 1e3, min(values) * 1e3, first / middle, error)
        )
    return result


def _bound(run: Callable[[Mapping[str, Any]], Any], inputs: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: run(inputs)


def _interleaved(runs: Mapping[str, Callable[[], Any]], rounds: int, threads: int | None) -> dict[str, list[float]]:
    counts: dict[str, int] = {}
    for name, run in runs.items():
        run()
        started = time.perf_counter()
        run()
        counts[name] = max(1, min(10000, round(0.01 / max(time.perf_counter() - started, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = random.Random(0)
    for _ in range(rounds):
        names = list(runs)
        order.shuffle(names)
        for name in names:
            if threads != 1:
                time.sleep(_REST)
                runs[name]()
            started = time.perf_counter()
            for _ in range(counts[name]):
                runs[name]()
            times[name].append((time.perf_counter() - started) / counts[name])
    return times


def _furthest(got: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    if set(got) != set(expected):
        return float("inf")
    return max((measure(got[name], expected[name], rtol=0, atol=0).max_abs for name in expected), default=0.0)
