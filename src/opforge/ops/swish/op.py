"""Swish (SiLU for beta = 1): Ramachandran, Zoph and Le, arXiv:1710.05941."""

from __future__ import annotations

from typing import Any

import opforge as of

__all__ = ["swish"]


@of.formula("org.opforge::Swish")
def swish(x: Any, *, beta: float = 1.0) -> Any:  # noqa: ANN401 - traced
    """Self-gated activation, x * sigmoid(beta * x)."""
    return x * of.sigmoid(beta * x)
