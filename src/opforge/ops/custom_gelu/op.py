"""CustomGELU: the tanh form of the Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415)."""

from __future__ import annotations

from typing import Any

import opforge as of

__all__ = ["custom_gelu"]


@of.formula("com.example::CustomGELU")
def custom_gelu(x: Any) -> Any:  # noqa: ANN401 - traced: an expression, not a tensor
    """GELU in its tanh form, 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))."""
    return 0.5 * x * (1 + of.tanh(of.sqrt(2 / of.pi) * (x + 0.044715 * x**3)))
