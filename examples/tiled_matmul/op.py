"""TiledMatMul: a matrix product whose CUDA kernel is read in `docs/cuda.md`, line by line.

It teaches: tiles in shared memory, boundaries for any size, padding against bank conflicts, sums in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import opforge as of


def _reference(left: Any, right: Any) -> Any:
    return np.matmul(left, right)


tiled_matmul = of.kernel(
    "examples.cuda::TiledMatMul",
    "(left: T[m, k], right: T[k, n]) -> (out: T[m, n])",
    types={"T": of.floating},
    sources=["cpu.cc", "cuda.cu"],
    reference=_reference,
    differentiable=False,
    host_name="tiled_matmul",
    doc="The matrix product; halves are summed in float.",
    onnx_body="out = MatMul (left, right)",
)
