"""TensorRT, with our CUDA kernels as plugins."""

from __future__ import annotations

from opforge.engines.tensorrt._engine import TensorRt

__all__ = ["TensorRt", "engines"]

engines = (TensorRt("tensorrt", route="auto"), TensorRt("tensorrt-plugins", route="plugins"))
"""The first puts the bodies of formulas in the place of their nodes, the second computes all of ours by plugins."""
