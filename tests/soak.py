"""How many times longer `make soak` (OPFORGE_SOAK=50) runs what `make test` runs briefly, and a judge of memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from opforge.verify.stress import growth, resident_bytes

FACTOR = int(os.environ.get("OPFORGE_SOAK") or 1)
_SAMPLES = 60


def measure(run: Callable[[int], object], runs: int) -> list[int]:
    """Call ``run(k)`` for each k below ``runs``; return resident memory at even distances."""
    samples = []
    for k in range(runs):
        run(k)
        if k % max(1, runs // _SAMPLES) == 0:
            samples.append(resident_bytes() or 0)
    return samples


def leaks(samples: Sequence[int]) -> bool:
    """Whether memory grows beyond doubt; see `opforge stress`, whose judge this is."""
    return growth(samples).verdict == "grows"


def verdict(samples: Sequence[int], runs: int) -> str:
    """Say what the judge found, for the table of `make soak`."""
    found = growth(samples)
    held = {"holds": "does not grow", "grows": "grows", "not clear": "is not clear"}[found.verdict]
    change = f"{found.bytes / 1024:+.0f} KiB ({found.low / 1024:+.0f} to {found.high / 1024:+.0f}) in {runs} runs"
    return f"memory {held}: {change}, {samples[-1] >> 20} MiB at the end"
