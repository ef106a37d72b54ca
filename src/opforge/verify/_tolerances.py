"""What a comparison of engines allows: by the output's dtype, by the operator that makes it, or as the caller says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from opforge.errors import ArgumentError

__all__ = ["BY_DTYPE", "BY_OPERATOR", "Limit", "Tolerances"]


@dataclass(frozen=True)
class Limit:
    """Allowed |error| <= atol + rtol*|expected|."""

    rtol: float
    atol: float

    def __str__(self) -> str:
        return f"{self.atol:g} + {self.rtol:g}*|expected|" if self.rtol or self.atol else "equal"


_EXACT = Limit(0.0, 0.0)
BY_DTYPE = {
    "float64": Limit(1e-9, 1e-12),
    "float32": Limit(1e-4, 1e-5),
    "float16": Limit(1e-2, 1e-3),
    "bfloat16": Limit(5e-2, 1e-2),
}
"""Two engines that sum in another order and round at other places; other dtypes must be equal."""

_STEP = Limit(0.0, 1.0)
_CODES = """
QuantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul com.microsoft::QLinearAdd com.microsoft::QLinearMul
com.microsoft::QLinearSigmoid com.microsoft::QLinearLeakyRelu com.microsoft::QLinearConcat
com.microsoft::QLinearSoftmax com.microsoft::QLinearAveragePool com.microsoft::QLinearGlobalAveragePool
"""
BY_OPERATOR = dict.fromkeys(_CODES.split(), _STEP)
"""Codes at the border between two steps: another last bit before the rounding gives the neighbour."""


@dataclass(frozen=True)
class Tolerances:
    """Limits of a comparison.

    Attributes:
        rtol: for every output; None = by dtype and operator.
        atol: the same.
        named: output, operator (``domain::Name``) or NumPy dtype -> limit, which goes before all else.
        makers: output -> operator that makes it.
    """

    rtol: float | None = None
    atol: float | None = None
    named: Mapping[str, Limit] = field(default_factory=dict)
    makers: Mapping[str, str] = field(default_factory=dict)

    def of(self, output: str, dtype: np.dtype[np.generic]) -> Limit:
        """Return what is allowed for an output of a dtype; of a sequence's element under the sequence's name."""
        name = output.partition("[")[0] if output not in self.makers else output
        maker = self.makers.get(name, "")
        for key in (output, name, maker, dtype.name):
            if key and key in self.named:
                return self.named[key]
        usual = BY_DTYPE.get(dtype.name, _EXACT)
        if usual is _EXACT and dtype.itemsize == 1 and dtype.kind in "iu":
            usual = BY_OPERATOR.get(maker, usual)
        if self.rtol is None and self.atol is None:
            return usual
        return Limit(usual.rtol if self.rtol is None else self.rtol, usual.atol if self.atol is None else self.atol)

    def check(self, known: set[str]) -> None:
        """Refuse names that are neither an output, nor an operator of the model, nor a dtype."""
        strange = sorted(set(self.named) - known - {np.dtype(t).name for t in "?bhilqBHILQefd"} - {"bfloat16"})
        if strange:
            raise ArgumentError(
                f"a tolerance is given for {', '.join(strange)}",
                where="compare",
                expected=f"a dtype, an output or an operator of the model: {', '.join(sorted(known))}",
            )
