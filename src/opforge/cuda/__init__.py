"""CUDA on machines without a GPU: kernels in an emulator, occupancy from what the compiler says."""

from __future__ import annotations

from opforge.cuda.calls import Called, Finding, call
from opforge.cuda.emulator import MODES, ORDERS, Emulated, emulate, emulate_operators
from opforge.cuda.resources import Occupancy, Resources, best_block, occupancy, read_resources
from opforge.cuda.source import rewrite

__all__ = [
    "MODES",
    "ORDERS",
    "Called",
    "Emulated",
    "Finding",
    "Occupancy",
    "Resources",
    "best_block",
    "call",
    "emulate",
    "emulate_operators",
    "occupancy",
    "read_resources",
    "rewrite",
]
