"""ClipSigmoid: a sigmoid kept inside bounds."""

from __future__ import annotations

from typing import Any

import opforge as of

__all__ = ["clip_sigmoid"]


@of.formula("com.example::ClipSigmoid")
def clip_sigmoid(x: Any, *, lo: float = 0.1, hi: float = 0.9) -> Any:  # noqa: ANN401 - traced
    """Sigmoid limited to [lo, hi]; its derivative is 0 where the limit is active. NaN stays NaN."""
    return of.clip(of.sigmoid(x), lo, hi)
