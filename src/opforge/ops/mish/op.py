"""Mish: Misra, arXiv:1908.08681."""

from __future__ import annotations

from typing import Any

import opforge as of

__all__ = ["mish"]


@of.formula("org.opforge::Mish")
def mish(x: Any) -> Any:  # noqa: ANN401 - traced
    """Smooth activation, x * tanh(softplus(x))."""
    return x * of.tanh(of.softplus(x))
