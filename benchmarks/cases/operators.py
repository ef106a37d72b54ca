"""Single operators against ONNX Runtime, one thread: one row of the bench per family, printed without a limit.

Times are those of the calling thread, which does all the work: what else the machine does hardly moves them.
`python -m benchmarks.cases.operators [PART-OF-A-NAME ...]` prints every operator, the slowest first.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases._operators import FAMILIES, Row

PEER = "onnxruntime"


@dataclass
class Pair:
    """One operator in both engines."""

    name: str
    runs: dict[str, Callable[[], Any]]
    times: dict[str, list[float]] = field(default_factory=lambda: {OURS: [], PEER: []})

    @property
    def ratio(self) -> float:
        """How many times faster opforge is: the median over blocks that ran side by side."""
        return statistics.median(b / a for a, b in zip(self.times[OURS], self.times[PEER], strict=True))


def _pair(row: Row, threads: int, folder: Path) -> Pair:
    """Compile one operator for both engines and compare their results."""
    import numpy as np
    import onnxruntime

    import opforge as of

    model, inputs = row.model()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    target = folder / "operator.bin"
    of.compile(model, target)
    session = of.Session(target, threads=threads)
    if row.compare:
        for name, expected in zip((o.name for o in model.graph.output), peer.run(None, inputs), strict=True):
            found = session.run(inputs)[name]
            assert found.dtype == expected.dtype, (row.name, found.dtype, expected.dtype)
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=row.tolerance, err_msg=row.name)
    return Pair(row.name, {OURS: partial(session.run, inputs), PEER: partial(peer.run, None, inputs)})


def _measure(pair: Pair, blocks: int, seconds: float) -> None:
    """Time both in blocks that take turns; which goes first alternates."""
    counts = {}
    for name, run in pair.runs.items():
        run()
        started = time.thread_time()
        run()
        counts[name] = max(1, min(2000, round(seconds / max(time.thread_time() - started, 1e-7))))
    for block in range(blocks):
        for name in (OURS, PEER) if block % 2 else (PEER, OURS):
            run, count = pair.runs[name], counts[name]
            started = time.thread_time()
            for _ in range(count):
                run()
            pair.times[name].append((time.thread_time() - started) / count)


def sweep(rows: Sequence[Row], threads: int = 1, blocks: int = 9, seconds: float = 0.002) -> list[Pair]:
    """Measure the operators one after the other."""
    pairs = []
    with tempfile.TemporaryDirectory(prefix="opforge-bench-") as folder:
        for row in rows:
            pair = _pair(row, threads, Path(folder))
            _measure(pair, blocks, seconds)
            pair.runs.clear()
            pairs.append(pair)
    return pairs


def _prepare(family: str, threads: int) -> Prepared:
    """The family's geometric mean of times."""
    pairs = sweep(FAMILIES[family], threads)
    means = {name: statistics.geometric_mean(statistics.median(p.times[name]) for p in pairs) for name in (OURS, PEER)}
    return Prepared(values=means)


CASES = [
    Case(f"operators: {family}", partial(_prepare, family), {}, rounds=1, needs=("onnxruntime",)) for family in FAMILIES
]


def main(parts: Sequence[str]) -> None:
    """Print every operator whose name holds one of `parts`, the slowest first, and the summary."""
    rows = [
        (family, row)
        for family, rows in FAMILIES.items()
        for row in rows
        if not parts or any(part in f"{family}/{row.name}" for part in parts)
    ]
    pairs = sweep([row for _, row in rows])
    for pair in sorted(pairs, key=lambda p: p.ratio):
        ours, theirs = (statistics.median(pair.times[name]) * 1e6 for name in (OURS, PEER))
        print(f"{pair.ratio:6.2f}  {ours:9.1f} us  {theirs:9.1f} us  {pair.name}")
    ratios = [p.ratio for p in pairs]
    ahead = sum(r >= 1 for r in ratios)
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, ahead in {ahead} of {len(ratios)}")


if __name__ == "__main__":
    main(sys.argv[1:])
