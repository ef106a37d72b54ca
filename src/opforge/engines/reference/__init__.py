"""ONNX's reference evaluator: slow and plain, with registered operators computed by their float64 references."""

from __future__ import annotations

from opforge.engines.reference._engine import Reference

__all__ = ["Reference", "engines"]

engines = (Reference(),)
