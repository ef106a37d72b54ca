"""Lines of a log as a watched session writes them, with figures that a test chooses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WINDOWS = 24


def line(at: int, **changes: Any) -> dict[str, Any]:
    """A window of 100 runs with two operators; ``changes`` replace entries."""
    return {
        "format": "opforge-monitor-1", "model": "net", "process": 7, "begun": 1000.0, "path": "net.bin",
        "fingerprint": "00c0ffee", "version": "0.1.0", "threads": 1, "at": 1000.0 + 10 * at, "seconds": 10.0,
        "runs": 100, "errors": {},
        "latency_ns": {"p50": 200_000, "p90": 210_000, "p99": 240_000, "p99.9": 250_000, "max": 260_000,
                       "mean": 203_000.0},
        "arena_bytes": 4096, "resident_bytes": 100 << 20, "shapes": [{"inputs": {"x": [4, 8]}, "runs": 2}],
        "sampled_runs": 2, "operators": {"MatMul": 120_000.0, "Softmax": 60_000.0, "Shape": 50.0},
        "nodes": [{"name": "y", "operator": "MatMul", "run_ns": 120_000.0, "calls": 2}],
        **changes,
    }  # fmt: skip


def steady(**changes: Any) -> list[dict[str, Any]]:
    """Windows that are all alike."""
    return [line(at, **changes) for at in range(WINDOWS)]


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    """Write a log."""
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path
