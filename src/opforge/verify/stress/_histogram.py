"""A histogram of latencies that keeps every value to a stated number of significant digits in bounded memory.

The layout is HdrHistogram's (Gil Tene, http://hdrhistogram.org): buckets that double in range, each cut into the same
number of linear steps, so that recording is two shifts and an addition whatever the value.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator

__all__ = ["Histogram"]

_LONGEST_BITS = 42
"""Values are below 2**42 ns, 73 minutes; longer ones count as that."""


class Histogram:
    """Counts of whole numbers (nanoseconds), each known to within one part in 10**digits."""

    def __init__(self, digits: int = 3) -> None:
        """Make an empty histogram.

        Args:
            digits: significant digits that are kept, 1 to 4.
        """
        self.digits = digits
        self._half_bits = math.ceil(math.log2(10**digits))
        self._half = 1 << self._half_bits
        self._counts = array("q", bytes(8 * self._half * (_LONGEST_BITS - self._half_bits + 1)))
        self.total = 0
        self.sum = 0
        self.max = 0

    def record(self, value: int) -> None:
        """Count one value."""
        kept = min(max(value, 0), (1 << _LONGEST_BITS) - 1)
        bucket = max(0, kept.bit_length() - self._half_bits - 1)
        self._counts[bucket * self._half + (kept >> bucket)] += 1
        self.total += 1
        self.sum += value
        self.max = max(self.max, value)

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram with as many digits."""
        if other.digits != self.digits:
            raise ValueError(f"histograms of {self.digits} and {other.digits} digits have other steps")
        for index, count in enumerate(other._counts):
            if count:
                self._counts[index] += count
        self.total += other.total
        self.sum += other.sum
        self.max = max(self.max, other.max)

    def steps(self) -> Iterator[tuple[int, int]]:
        """Yield (largest value of the step, count) for every step that is not empty, upwards."""
        for index, count in enumerate(self._counts):
            if count:
                bucket = max(0, index // self._half - 1)
                low = (index - bucket * self._half) << bucket
                yield min(low + (1 << bucket) - 1, self.max), count

    def percentile(self, percent: float) -> int:
        """Return the smallest recorded value (to the kept digits) that this share of values does not exceed."""
        wanted = max(1, math.ceil(self.total * percent / 100 - 1e-9))
        seen = 0
        for value, count in self.steps():
            seen += count
            if seen >= wanted:
                return value
        return 0

    @property
    def mean(self) -> float:
        """The exact mean; 0 when nothing was recorded."""
        return self.sum / self.total if self.total else 0.0
