"""Times of things that run on a device: medians of interleaved rounds, with events, and with the L2 cache flushed."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

__all__ = ["Clock", "CudaClock", "WallClock", "open_clock", "rehearsing", "summary"]

Runs = Mapping[str, Callable[[], Any]]
_FLUSH: Final = 512 << 20
"""Bytes; the device takes more than 100 us for them, which is what the host needs to queue a backward pass."""


def rehearsing() -> bool:
    """Whether there is no GPU and the fake driver stands for it: tiny sizes, no meaning."""
    import os

    return os.environ.get("OPFORGE_DEVICE_CHECK") == "emulated"


class Clock(Protocol):
    """What takes times."""

    device: str

    def synchronize(self) -> None:
        """Wait for the device."""

    def times(self, runs: Runs, rounds: int, seed: int = 0) -> dict[str, list[float]]:
        """Return seconds on the device of single calls, of each run in every round."""

    def calls(self, runs: Runs, rounds: int, count: int, seed: int = 0) -> dict[str, list[float]]:
        """Return seconds that the host needs for one call, of `count` in a row, of each run in every round."""


class _Rounds:
    device = "cpu"

    def synchronize(self) -> None:
        pass

    def calls(self, runs: Runs, rounds: int, count: int, seed: int = 0) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in runs}
        for name in _order(runs, rounds, seed):
            run = runs[name]
            self.synchronize()
            started = time.perf_counter()
            for _ in range(count):
                run()
            times[name].append((time.perf_counter() - started) / count)
            self.synchronize()
        return times


class WallClock(_Rounds):
    """The host's clock, for rehearsals."""

    def times(self, runs: Runs, rounds: int, seed: int = 0) -> dict[str, list[float]]:
        """See `Clock`."""
        return self.calls(runs, rounds, 1, seed)


class CudaClock(_Rounds):
    """CUDA events, on torch's current stream.

    Before each call a buffer beyond the L2 cache is overwritten: inputs come from memory, as the bytes that are counted
    suppose, and the host has queued the call and its events before the device gets there, so that times are the
    device's alone.
    """

    device = "cuda"

    def __init__(self) -> None:
        """Take the memory that is overwritten."""
        import torch

        self._torch = torch
        self._flush = torch.empty(_FLUSH, dtype=torch.uint8, device="cuda")

    def synchronize(self) -> None:
        """Wait for the device."""
        self._torch.cuda.synchronize()

    def times(self, runs: Runs, rounds: int, seed: int = 0) -> dict[str, list[float]]:
        """See `Clock`."""
        event = self._torch.cuda.Event
        marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in runs}
        for name in _order(runs, rounds, seed):
            start, end = event(enable_timing=True), event(enable_timing=True)
            self._flush.zero_()
            start.record()
            runs[name]()
            end.record()
            marks[name].append((start, end))
        self.synchronize()
        return {name: [start.elapsed_time(end) / 1000 for start, end in pairs] for name, pairs in marks.items()}


def _order(runs: Runs, rounds: int, seed: int) -> list[str]:
    """Every name once per round, in an order of its own."""
    order, names, every = random.Random(seed), list(runs), []
    for _ in range(rounds):
        order.shuffle(names)
        every += names
    return every


def open_clock() -> Clock:
    """Return the clock of this run."""
    return WallClock() if rehearsing() else CudaClock()


def summary(values: list[float]) -> dict[str, float]:
    """Return the median of times, and the part of them between which eight of ten lie."""
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return {"seconds": statistics.median(ordered), "low": low, "high": high}
