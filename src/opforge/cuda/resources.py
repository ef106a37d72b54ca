"""How many blocks of a kernel a multiprocessor holds at a time, without a GPU.

From the limits that NVIDIA documents per compute capability ("Technical Specifications per Compute Capability" of the
CUDA C++ Programming Guide) and the units in which registers and shared memory are given out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from opforge.errors import ArgumentError

__all__ = ["LIMITS", "Limits", "Occupancy", "Resources", "best_block", "occupancy", "read_resources"]

_WARP: Final = 32
_PARTITIONS: Final = 4
_MOST_REGISTERS: Final = 255
_MOST_THREADS: Final = 1024


@dataclass(frozen=True)
class Limits:
    """Of one multiprocessor.

    Attributes:
        warps: that are resident at a time.
        blocks: that are resident at a time.
        shared: bytes of shared memory.
        shared_block: bytes that one block can have.
        reserved: bytes that the system takes for each block.
        shared_unit: bytes in which shared memory is given out.
        registers: of 32 bits.
        register_unit: registers in which a warp gets them.
    """

    warps: int
    blocks: int
    shared: int
    shared_block: int
    reserved: int = 1024
    shared_unit: int = 128
    registers: int = 65536
    register_unit: int = 256


_KIB: Final = 1024
LIMITS: Final[Mapping[int, Limits]] = MappingProxyType(
    {
        75: Limits(32, 16, 64 * _KIB, 64 * _KIB, reserved=0, shared_unit=256),
        80: Limits(64, 32, 164 * _KIB, 163 * _KIB),
        86: Limits(48, 16, 100 * _KIB, 99 * _KIB),
        87: Limits(48, 16, 164 * _KIB, 163 * _KIB),
        89: Limits(48, 24, 100 * _KIB, 99 * _KIB),
        90: Limits(64, 32, 228 * _KIB, 227 * _KIB),
        100: Limits(64, 32, 228 * _KIB, 227 * _KIB),
        120: Limits(48, 24, 100 * _KIB, 99 * _KIB),
    }
)
"""By compute capability, 80 = sm_80."""


@dataclass(frozen=True)
class Resources:
    """What a kernel needs, as ptxas says it.

    Attributes:
        kernel: its name, as the compiler mangles it.
        architecture: compute capability that it was compiled for.
        registers: per thread.
        shared: bytes of static shared memory per block.
        spill_stores: bytes that a thread writes because registers did not suffice.
        spill_loads: bytes that it reads back.
        stack: bytes of stack per thread.
    """

    kernel: str
    architecture: int
    registers: int
    shared: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0


@dataclass(frozen=True)
class Occupancy:
    """Blocks of one kernel that a multiprocessor holds.

    Attributes:
        blocks: resident at a time; 0 where not even one fits.
        fraction: of the warps that could be resident.
        limiting: what sets the limit: "blocks", "warps", "registers" or "shared memory".
        allowed: blocks that each of these alone would allow.
    """

    blocks: int
    fraction: float
    limiting: str
    allowed: Mapping[str, int]


def occupancy(architecture: int, threads: int, registers: int, shared: int = 0) -> Occupancy:
    """Compute the occupancy of a kernel.

    Args:
        architecture: compute capability, 80 = sm_80; one of `LIMITS`.
        threads: per block, 1 to 1024.
        registers: per thread.
        shared: bytes of shared memory per block, static and dynamic.

    Raises:
        ArgumentError: an unknown architecture, or a number that no kernel can have.
    """
    limits = LIMITS.get(architecture)
    if limits is None:
        known = ", ".join(f"sm_{number}" for number in LIMITS)
        raise ArgumentError("unknown architecture", where="occupancy", expected=known, got=f"sm_{architecture}")
    if not 1 <= threads <= _MOST_THREADS or registers < 0 or shared < 0:
        raise ArgumentError(
            "no such block",
            where="occupancy",
            expected=f"1 to {_MOST_THREADS} threads, registers and bytes of 0 or more",
            got=f"{threads} threads, {registers} registers, {shared} bytes",
        )
    warps = -(-threads // _WARP)
    allowed = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": _by_registers(limits, warps, registers),
        "shared memory": _by_shared(limits, shared),
    }
    blocks = min(allowed.values())
    limiting = next(name for name, count in allowed.items() if count == blocks)
    return Occupancy(blocks, blocks * warps / limits.warps, limiting, MappingProxyType(allowed))


def best_block(architecture: int, registers: int, shared: int = 0, shared_per_thread: int = 0) -> int:
    """Return the threads per block, a multiple of a warp, that keep most warps resident; the fewest of equal ones.

    Args:
        architecture: compute capability, 80 = sm_80.
        registers: per thread.
        shared: bytes per block, whatever its size.
        shared_per_thread: bytes more for each thread.

    Raises:
        ArgumentError: an unknown architecture, or a kernel that no block size suits.
    """

    def resident(threads: int) -> tuple[int, int]:
        found = occupancy(architecture, threads, registers, shared + shared_per_thread * threads)
        return found.blocks * threads, -threads

    best = max(range(_WARP, _MOST_THREADS + 1, _WARP), key=resident)
    if resident(best)[0] == 0:
        raise ArgumentError(
            "no block of this kernel fits a multiprocessor",
            where=f"sm_{architecture}",
            expected=f"at most {_MOST_REGISTERS} registers and {LIMITS[architecture].shared_block} bytes",
            got=f"{registers} registers, {shared} bytes and {shared_per_thread} per thread",
        )
    return best


def _by_registers(limits: Limits, warps: int, registers: int) -> int:
    if registers > _MOST_REGISTERS:
        return 0
    if registers == 0:
        return limits.blocks
    of_warp = _up(registers * _WARP, limits.register_unit)
    resident = limits.registers // _PARTITIONS // of_warp * _PARTITIONS
    # A block's own warps are spread over the partitions, each with its part of the registers.
    return resident // warps


def _by_shared(limits: Limits, shared: int) -> int:
    if shared > limits.shared_block:
        return 0
    of_block = _up(shared + limits.reserved, limits.shared_unit)
    return limits.shared // of_block if of_block else limits.blocks


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


_COMPILING = re.compile(r"Compiling entry function '(?P<kernel>[^']+)' for 'sm_(?P<architecture>\d+)a?f?'")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def read_resources(text: str) -> list[Resources]:
    """Read what ``ptxas -v`` (``nvcc -Xptxas -v``) wrote: a row per kernel and architecture.

    Raises:
        ArgumentError: the text names no kernel.
    """
    starts = list(_COMPILING.finditer(text))
    if not starts:
        raise ArgumentError(
            "these are not the words of ptxas",
            where="read_resources",
            expected="the error stream of nvcc -Xptxas -v",
            got=text.strip()[:80],
        )
    rows = []
    for start, end in zip(starts, [*(s.start() for s in starts[1:]), len(text)], strict=True):
        part = text[start.end() : end]
        used, shared, stack = _USED.search(part), _SHARED.search(part), _STACK.search(part)
        frame, stores, loads = map(int, stack.groups()) if stack else (0, 0, 0)
        rows.append(
            Resources(
                start["kernel"],
                int(start["architecture"]),
                int(used[1]) if used else 0,
                int(shared[1]) if shared else 0,
                stores,
                loads,
                frame,
            )
        )
    return rows
