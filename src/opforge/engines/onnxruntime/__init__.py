"""ONNX Runtime: runs our operators through their function bodies."""

from __future__ import annotations

from opforge.engines.onnxruntime._engine import OnnxRuntime

__all__ = ["OnnxRuntime", "engines"]

engines = (OnnxRuntime(),)
