"""ncnn: models converted to .param and .bin by our passes, run by ncnn's Python package with our kernels between."""

from __future__ import annotations

from opforge.engines.ncnn._engine import Ncnn

__all__ = ["Ncnn", "engines"]

engines = (Ncnn(),)
