"""CUDA: kernels on machines without a GPU (the emulator)."""

from __future__ import annotations

from opforge.cuda.calls import Called, Finding, call
from opforge.cuda.emulator import MODES, ORDERS, Emulated, emulate, emulate_operators
from opforge.cuda.source import rewrite

__all__ = ["MODES", "ORDERS", "Called", "Emulated", "Finding", "call", "emulate", "emulate_operators", "rewrite"]
