"""Memory of a process over time, and whether it grows: a line with its confidence interval, the warm-up cut off."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Growth", "growth", "resident_bytes", "shared_out_bytes"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_WARM_UP = 0.25
"""Share of the samples that is cut off: what a process keeps for good (caches, arenas) it mostly takes there."""
_FEWEST = 12
"""Samples below which nothing is said."""


def resident_bytes(process: int | str = "self") -> int | None:
    """Return the resident memory of a process (RSS); None where it is gone or the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, IndexError):
        return None


def shared_out_bytes(process: int | str = "self") -> int | None:
    """Return the resident memory with shared pages divided among those who share them (PSS); None where unknown."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
    return int(kilobytes[0]) * 1024 if kilobytes else None


@dataclass(frozen=True)
class Growth:
    """How memory changes over the samples that count.

    Attributes:
        bytes: change over these samples, by the slope of a line through them.
        low: lower end of the 95 % confidence interval of it.
        high: upper end.
        allowed: growth that is no leak.
        samples: how many samples the line is through.
        span: distance of the first and the last of them, in calls or in samples.
        goes_on: whether the later half of the samples grows too, beyond doubt; a cache that fills once does not.
    """

    bytes: float
    low: float
    high: float
    allowed: int
    samples: int
    span: float
    goes_on: bool

    @property
    def verdict(self) -> str:
        """``grows``, ``holds``, or ``not clear`` (too few samples, or an interval with the limit inside)."""
        if self.samples < _FEWEST:
            return "not clear"
        if self.low > self.allowed and self.goes_on:
            return "grows"
        return "holds" if self.high <= self.allowed else "not clear"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, the verdict with it."""
        return {**asdict(self), "verdict": self.verdict}


def growth(samples: Sequence[int], allowed: int = 1 << 20, calls: Sequence[int] | None = None) -> Growth:
    """Judge samples of memory.

    What a call loses shows in a line over the calls, however unevenly they follow each other: on a busy machine many
    run in one second, and none in the next.

    The interval allows for samples that depend on the one before, as those of a process's memory do: the number of
    independent samples is reduced by the first autocorrelation of what the line leaves (an AR(1) process).

    Args:
        samples: bytes.
        allowed: growth over the samples that count that is no leak.
        calls: how many were finished at each sample; None, or where none is finished in the later half of those that
            count: samples at even distances.
    """
    first = int(len(samples) * _WARM_UP)
    kept = np.asarray(samples[first:], np.float64)
    if len(kept) < _FEWEST:
        return Growth(0.0, 0.0, 0.0, allowed, len(kept), 0.0, False)
    half = len(kept) // 2
    x = np.asarray(range(len(kept)) if calls is None else calls[first:], np.float64)
    if x[-1] == x[half]:
        x = np.arange(len(kept), dtype=np.float64)
    slope, error = _line(x, kept)
    later, later_error = _line(x[half:], kept[half:])
    span = float(x[-1] - x[0])
    low, high = (slope - error) * span, (slope + error) * span
    return Growth(slope * span, low, high, allowed, len(kept), span, later - later_error > 0)


def _line(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Return the slope and half its 95 % interval."""
    x = x - x[0]
    slope, level = np.polyfit(x, y, 1)
    residual = y - (slope * x + level)
    energy = float(residual @ residual)
    if energy <= 1e-9 * float(y @ y) * np.finfo(np.float64).eps:
        return float(slope), 0.0
    after = max(0.0, float(residual[1:] @ residual[:-1]) / energy)
    independent = max(4.0, len(y) * (1 - after) / (1 + after))
    freedom = independent - 2
    error = np.sqrt(energy / freedom / float(((x - x.mean()) ** 2).sum()))
    return float(slope), float(_quantile(freedom) * error)


def _quantile(freedom: float) -> float:
    """Student's 97.5 % quantile by the expansion about the normal one (Abramowitz and Stegun 26.7.5)."""
    z = 1.959964
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom ** (k + 1) for k, term in enumerate(terms))
