"""ONNX models as .tflite files: standard operators as LiteRT's, registered ones as custom nodes."""

from __future__ import annotations

from opforge.engines.litert.writer._convert import convert
from opforge.engines.litert.writer._lower import ROWS
from opforge.engines.litert.writer._scope import OpenShapeError

__all__ = ["ROWS", "OpenShapeError", "convert"]
