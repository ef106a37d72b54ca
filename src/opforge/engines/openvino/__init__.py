"""OpenVINO, twice: our operators as the bodies that a model carries, and by our kernels."""

from __future__ import annotations

from opforge.engines.openvino._engine import OpenVino

__all__ = ["OpenVino", "engines"]

engines = (OpenVino("openvino", bodies=True), OpenVino("openvino-kernels", bodies=False))
"""The first computes a node with a body by OpenVINO's own kernels, which makes it a check of ours."""
