"""Products whose weights lie as f16 or bf16: rows for every way of reading them, columns around whole blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import ml_dtypes
import numpy as np

from tests.unit.kernels.cases_products import Case, normal
from tests.unit.kernels.graphs import Net


def half_weights(rng: np.random.Generator) -> Iterator[Case]:
    shapes = [
        (1, 64, 264),
        (1, 33, 40),
        (3, 50, 72),
        (4, 40, 136),
        (5, 64, 200),
        (20, 48, 88),
        (130, 24, 24),
        (0, 8, 8),
    ]
    for (m, k, n), kind in product(shapes, (np.float16, ml_dtypes.bfloat16)):
        x, b = normal(rng, m, k), normal(rng, k, n).astype(kind)
        bias = normal(rng, n)
        net = Net()
        out = net.node("MatMul", [net.feed(x), net.constant(b, "matmul16"), net.constant(bias)], K=k, N=n)
        reference = x.astype(np.float64) @ b.astype(np.float64) + bias
        yield f"MatMul {np.dtype(kind).name} {m} {k} {n}", net, out, reference, 4e-6


FAMILIES = (half_weights,)
