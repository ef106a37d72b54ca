"""ONNX Runtime: what a user reaches as ``opforge.onnxruntime``.

``session(model)`` opens a session in which our kernels compute our nodes. ``library()`` is for those who make their
sessions themselves: ``options.register_custom_ops_library(opforge.onnxruntime.library())``.
"""

from __future__ import annotations

from opforge.engines.onnxruntime._adapter import adapter_path
from opforge.engines.onnxruntime._operators import register_library
from opforge.engines.onnxruntime._session import library, session

__all__ = ["adapter_path", "library", "register_library", "session"]
