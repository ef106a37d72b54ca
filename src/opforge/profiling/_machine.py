"""What this machine can do at most: peak of multiply-adds and bandwidth, measured once and kept."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
from bisect import bisect_left
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opforge._files import whole_file
from opforge.bin.native import native
from opforge.build.cache import cache_dir

__all__ = ["Machine", "machine"]

_SIZES = tuple(1 << k for k in range(14, 29, 2))
"""Working sets of the copies that are measured: 16 KiB to 256 MiB, from the first cache to memory."""


@dataclass(frozen=True)
class Machine:
    """Roofs of this machine.

    Attributes:
        identity: processor, instruction set and CPUs that the figures belong to.
        threads: of the measurement.
        flops_per_s: f32 operations a second, two per multiply-add.
        copies: (bytes of the working set, bytes read and written a second), from the first cache to memory.
    """

    identity: str
    threads: int
    flops_per_s: float
    copies: tuple[tuple[int, float], ...]

    @property
    def memory_bytes_per_s(self) -> float:
        """Bandwidth of copies that no cache holds."""
        return self.copies[-1][1]

    def bytes_per_s(self, size: int) -> float:
        """Bandwidth for a node that touches so many bytes, between the measured sizes by their logarithm."""
        sizes = [step[0] for step in self.copies]
        k = bisect_left(sizes, size)
        if k == 0 or k == len(sizes):
            return self.copies[min(k, len(sizes) - 1)][1]
        (low, slow), (high, fast) = self.copies[k - 1], self.copies[k]
        part = math.log(size / low) / math.log(high / low)
        return slow + part * (fast - slow)

    def as_dict(self) -> dict[str, Any]:
        """Give plain data."""
        return {**asdict(self), "bytes_per_s": self.memory_bytes_per_s}


def machine(threads: int | None = None, *, remeasure: bool = False) -> Machine:
    """Return the roofs for this many threads (None: all), measured now if they were never before on this machine.

    The measurement takes about a second and is kept in the cache folder. Other work on the machine lowers it, so that
    a profile may show more than 100 % of a roof; ``remeasure`` measures anew.
    """
    runtime = native()
    count = min(threads or runtime.thread_count(), runtime.thread_count())
    identity = f"{_processor()}, {runtime.isa()}, {os.cpu_count()} CPUs"
    key = hashlib.sha256(f"{identity} {count}".encode()).hexdigest()[:16]
    path = cache_dir() / "machine" / f"{key}.json"
    kept = _read(path, identity, count)
    if kept is not None and not remeasure:
        return kept
    copies = tuple((size, float(runtime.measure_copy(count, size))) for size in _SIZES)
    found = Machine(identity, count, float(runtime.measure_flops(count)), copies)
    with contextlib.suppress(OSError):  # a folder that cannot be written means to measure again next time
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            temporary.write_text(json.dumps(found.as_dict(), indent=1), encoding="utf-8")
    return found


def _read(path: Path, identity: str, threads: int) -> Machine | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = Machine(
            data["identity"],
            data["threads"],
            float(data["flops_per_s"]),
            tuple((int(s), float(v)) for s, v in data["copies"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    sound = found.identity == identity and found.threads == threads and found.flops_per_s > 0
    return found if sound and len(found.copies) == len(_SIZES) and all(v > 0 for _, v in found.copies) else None


def _processor() -> str:
    """Name the processor; machines of one name have one pair of roofs."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "Hardware", "uarch")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
