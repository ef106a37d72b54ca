"""How many times longer `make soak` (OPFORGE_SOAK=50) runs what `make test` runs briefly, and a judge of memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

FACTOR = int(os.environ.get("OPFORGE_SOAK") or 1)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SAMPLES = 60


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def growth(samples: Sequence[int]) -> tuple[float, float]:
    """Return how much memory grows over all samples, and the error of that: a line through the last three quarters.

    What a process keeps for good (caches, arenas) shows in the first quarter; a leak goes on.
    """
    y = np.asarray(samples[len(samples) // 4 :], np.float64)
    x = np.arange(len(y), dtype=np.float64)
    slope, level = np.polyfit(x, y, 1)
    residual = y - (slope * x + level)
    error = np.sqrt((residual**2).sum() / (len(y) - 2) / ((x - x.mean()) ** 2).sum())
    return float(slope * len(samples)), float(error * len(samples))


def measure(run: Callable[[int], object], runs: int) -> list[int]:
    """Call ``run(k)`` for each k below ``runs``; return resident memory at even distances."""
    samples = []
    for k in range(runs):
        run(k)
        if k % max(1, runs // _SAMPLES) == 0:
            samples.append(resident_bytes())
    return samples


def leaks(samples: Sequence[int], allowed: int = 1 << 20) -> bool:
    """Whether memory grows by more than ``allowed`` bytes, beyond doubt (4 standard errors)."""
    most, error = growth(samples)
    return most > allowed and most > 4 * error


def verdict(samples: Sequence[int], runs: int) -> str:
    """Say what the judge found, for the table of `make soak`."""
    most, error = growth(samples)
    held = "grows" if leaks(samples) else "does not grow"
    change = f"{most / 1024:+.0f} KiB (+-{4 * error / 1024:.0f}) in {runs} runs"
    return f"memory {held}: {change}, {samples[-1] >> 20} MiB at the end"
