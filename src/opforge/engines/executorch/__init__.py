"""ExecuTorch: lowered programs (.pte) in which our kernels run."""

from __future__ import annotations

from opforge.engines.executorch._engine import ExecuTorch

__all__ = ["ExecuTorch", "engines"]

engines = (ExecuTorch(),)
