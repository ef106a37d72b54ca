"""ONNX Runtime, twice: our operators as the function bodies that a model carries, and by our kernels."""

from __future__ import annotations

from opforge.engines.onnxruntime._engine import OnnxRuntime

__all__ = ["OnnxRuntime", "engines"]

engines = (OnnxRuntime("onnxruntime", bodies=True), OnnxRuntime("onnxruntime-kernels", bodies=False))
"""The first computes a node with a body by ONNX Runtime's own kernels, which makes it a check of ours."""
