"""LiteRT (TensorFlow Lite): .tflite models with our kernels for their custom nodes."""

from __future__ import annotations

from opforge.engines.litert._engine import LiteRt

__all__ = ["LiteRt", "engines"]

engines = (LiteRt(),)
