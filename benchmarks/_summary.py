"""What follows from many rows together: geometric means over whole models, and what a second thread brings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

__all__ = ["geometric_means", "second_thread"]

WHOLE_MODELS = ("models", "images")
"""Groups of cases that the means are taken over."""
MEANS = {"onnxruntime": 1.5, "openvino": 1.3}
"""What is asked of one thread."""
SCALE = 1.8
"""What is asked of two threads, where ONNX Runtime gets as much from its second one."""
TWO = ", 2 threads"
Row = dict[str, Any]


def geometric_means(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Return threads, peer, number of cases, mean and what is asked, over the whole models."""
    found: dict[tuple[int, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.get("group") in WHOLE_MODELS and row["peer"] in MEANS:
            found[row["threads"], row["peer"]].append(math.log(row["ratio"]))
    lines = []
    for (threads, peer), logs in sorted(found.items()):
        mean = math.exp(sum(logs) / len(logs))
        lines.append((str(threads), peer, str(len(logs)), f"{mean:.2f}", _asked(mean, MEANS[peer] * _share(threads))))
    return lines


def second_thread(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """Return case, time of one thread by that of two for opforge and for ONNX Runtime, and what is asked."""
    timed = {r["case"]: r for r in rows if r["peer"] == "onnxruntime" and r["metric"] == "time"}
    lines = []
    for name, two in timed.items():
        one = timed.get(name.replace(TWO, ""))
        if two["threads"] == 2 and one is not None and one["threads"] == 1:
            ours, theirs = one["ours"] / two["ours"], one["peer_value"] / two["peer_value"]
            asked = _asked(ours, SCALE) if theirs >= SCALE else ""
            lines.append((one["case"], f"{ours:.2f}", f"{theirs:.2f}", asked))
    return lines


def _share(threads: int) -> float:
    """Two threads may keep a tenth less of a ratio."""
    return 1.0 if threads == 1 else 0.9


def _asked(value: float, limit: float) -> str:
    return f"{limit:.2f}" if round(value, 2) >= limit else f"{limit:.2f}, short"
