"""CUDA kernels of formula operators: the functor that C++ has too, in the loops of ``opforge/cuda/elementwise.cuh``."""

from __future__ import annotations

from opforge.codegen.cpp import Loops, formula_unit
from opforge.codegen.units import Unit
from opforge.schema.operator import Operator

__all__ = ["cuda_unit"]

_LOOPS = Loops(
    "cuda", "opforge/cuda/elementwise.cuh", "opforge::cuda::fn", "opforge::cuda::elementwise", ".cu", halves=False
)


def cuda_unit(operator: Operator) -> Unit:
    """Emit the .cu unit of one formula operator (a gradient's too).

    Raises:
        InternalError: the operator has no formula.
    """
    return formula_unit(operator, _LOOPS)
