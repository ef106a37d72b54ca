"""ModSigmoid: a sigmoid shifted by a threshold tensor."""

from __future__ import annotations

from typing import Any

import opforge as of

__all__ = ["mod_sigmoid"]


@of.formula("com.example::ModSigmoid")
def mod_sigmoid(x: Any, threshold: Any) -> Any:  # noqa: ANN401 - traced
    """Sigmoid of x - threshold; the two broadcast, and gradients are summed back to each one's shape."""
    return of.sigmoid(x - threshold)
