"""The calls of a stress run: first results, then one caller, then several at once; results compared bit for bit.

Each part records what it saw in a `Tally`; nothing is judged here.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opforge.verify._rows import same_bits
from opforge.verify.stress._histogram import Histogram
from opforge.verify.stress._work import Job

__all__ = ["Failure", "Tally", "call_alone", "call_together", "differing", "first_results"]

Array = np.ndarray[Any, Any]
Results = Mapping[str, Array]


@dataclass(frozen=True)
class Failure:
    """A call that raised, or gave other results than the first one."""

    job: int
    kind: str
    text: str
    trace: str = ""


@dataclass
class Tally:
    """What one caller, or all of them together, saw.

    Attributes:
        latency: of all calls, in nanoseconds.
        by_job: the same per case, to two digits.
        errors: how often each message was raised.
        mismatches: per case, how often the results differed.
        first: the first failure of each kind.
        error_count: sum of ``errors``; others may read it while calls go on.
        mismatch_count: sum of ``mismatches``, likewise.
    """

    latency: Histogram = field(default_factory=Histogram)
    by_job: dict[int, Histogram] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    mismatches: dict[int, int] = field(default_factory=dict)
    first: dict[str, Failure] = field(default_factory=dict)
    error_count: int = 0
    mismatch_count: int = 0

    def add(self, other: Tally) -> None:
        """Take in what another caller saw."""
        self.latency.add(other.latency)
        for job, histogram in other.by_job.items():
            self.by_job.setdefault(job, Histogram(2)).add(histogram)
        for text, count in other.errors.items():
            self.errors[text] = self.errors.get(text, 0) + count
        for job, count in other.mismatches.items():
            self.mismatches[job] = self.mismatches.get(job, 0) + count
        for kind, failure in other.first.items():
            self.first.setdefault(kind, failure)
        self.error_count += other.error_count
        self.mismatch_count += other.mismatch_count

    def count(self, job: int, nanoseconds: int) -> None:
        """Record one finished call."""
        self.latency.record(nanoseconds)
        histogram = self.by_job.get(job)
        if histogram is None:
            histogram = self.by_job[job] = Histogram(2)
        histogram.record(nanoseconds)

    def failed(self, job: int, problem: BaseException) -> None:
        """Record a call that raised."""
        text = f"{type(problem).__name__}: {problem}"
        head = text.splitlines()[0]
        self.errors[head] = self.errors.get(head, 0) + 1
        self.error_count += 1
        if "error" not in self.first:
            self.first["error"] = Failure(job, "error", text, "".join(traceback.format_exception(problem)))

    def differed(self, job: int, text: str) -> None:
        """Record a call whose results were not those of the first."""
        self.mismatches[job] = self.mismatches.get(job, 0) + 1
        self.mismatch_count += 1
        self.first.setdefault("mismatch", Failure(job, "mismatch", text))


def first_results(jobs: Sequence[Job], mark: Callable[[int], None]) -> tuple[list[Results | None], list[str]]:
    """Run every case once, alone; keep copies of the results, or the words of the error.

    Args:
        jobs: the cases.
        mark: told which case is about to run, and -1 after it.
    """
    results: list[Results | None] = []
    problems: list[str] = []
    for index, job in enumerate(jobs):
        mark(index)
        try:
            results.append({name: np.array(value) for name, value in job.run().items()})
            problems.append("")
        except Exception as problem:  # whatever an engine raises is a finding
            results.append(None)
            problems.append(f"{type(problem).__name__}: {problem}")
        mark(-1)
    return results, problems


def differing(got: Results, expected: Results) -> str:
    """Say where two results differ ("" = nowhere); any NaN equals any NaN."""
    if list(got) != list(expected):
        return f"the outputs are {', '.join(got)}, first {', '.join(expected)}"
    for name, right in expected.items():
        value = got[name]
        if value.dtype != right.dtype:
            return f"output {name} is {value.dtype}, first {right.dtype}"
        if value.shape == right.shape and _equal_bytes(value, right):
            continue
        found = same_bits([right], [value]) if right.dtype != object else "" if (value == right).all() else "differs"
        if found:
            return f"output {name}: {found.replace('output 0 has', 'it has').replace(', then ', ' first, then ')}"
    return ""


def _equal_bytes(a: Array, b: Array) -> bool:
    if a.dtype == object or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return False
    return bool(np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)))


def _one_call(job: Job, index: int, expected: Results | None, tally: Tally) -> None:
    began = time.perf_counter_ns()
    try:
        got = job.run()
    except Exception as problem:  # whatever an engine raises is a finding
        tally.failed(index, problem)
        return
    tally.count(index, time.perf_counter_ns() - began)
    if expected is not None and job.compare:
        text = differing(got, expected)
        if text:
            tally.differed(index, text)


def call_alone(
    jobs: Sequence[Job],
    expected: Sequence[Results | None],
    order: Sequence[int],
    go_on: Callable[[bool], bool],
    tally: Tally,
    mark: Callable[[int], None],
) -> None:
    """Call cases from this thread, in shuffled order, each often, until ``go_on`` says no.

    Args:
        jobs: the cases.
        expected: their first results.
        order: which cases.
        go_on: asked before every call; told whether it is among the first of each case, without which nothing is known.
        tally: where to record.
        mark: told which case is about to run, and -1 after it.
    """
    shuffled = list(order)
    rng = random.Random(len(shuffled))
    for turn in itertools.count():
        rng.shuffle(shuffled)
        for index in shuffled:
            if not go_on(turn == 0):
                return
            mark(index)
            _one_call(jobs[index], index, expected[index], tally)
            mark(-1)


def call_together(
    jobs: Sequence[Job],
    expected: Sequence[Results | None],
    order: Sequence[int],
    go_on: Callable[[bool], bool],
    tallies: Sequence[Tally],
    mark: Callable[[int, int], None],
) -> None:
    """Call cases from as many threads at once as there are tallies, each in an order of its own.

    ``mark`` is told the caller and its case.
    """
    start = threading.Barrier(len(tallies))

    def caller(k: int) -> None:
        shuffled = list(order)
        rng = random.Random(k)
        start.wait()
        for turn in itertools.count():
            rng.shuffle(shuffled)
            for index in shuffled:
                if not go_on(turn == 0):
                    return
                mark(k, index)
                _one_call(jobs[index], index, expected[index], tallies[k])
                mark(k, -1)

    threads = [threading.Thread(target=caller, args=(k,), name=f"caller {k}", daemon=True) for k in range(len(tallies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
