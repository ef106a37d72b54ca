"""ONNX Runtime, three times: our operators as the bodies that a model carries, by our kernels, by our provider."""

from __future__ import annotations

from opforge.engines.onnxruntime._engine import OnnxRuntime

__all__ = ["OnnxRuntime", "engines"]

engines = (
    OnnxRuntime("onnxruntime", bodies=True),
    OnnxRuntime("onnxruntime-kernels", bodies=False),
    OnnxRuntime("onnxruntime-provider", bodies=False, provider=True),
)
"""The first computes a node with a body by ONNX Runtime's own kernels, which makes it a check of ours."""
