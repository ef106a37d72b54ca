"""Products whose operands are rounded to bf16, their references and their bound; as a program, a level's results.

The bound covers any order of the additions. Of x and w rounded to bf16, a product rounds once at most and then takes
part in at most K + 1 additions (the bias, and the zero beside an odd K): u = 2**-24 each, so the error is within
((1 + u)**(K + 2) - 1) * (sum of |x * w| + |bias|). vdpbf16ps takes and gives denormals as zeros: an operand changes by
less than 2**-126, and so does each product and each sum.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.unit.kernels.graphs import Net

__all__ = ["SHAPES", "bound", "cases", "product", "reference"]

Array = NDArray[np.float32]
K = (1, 2, 3, 33, 64, 127)
N = (1, 7, 8, 9, 16, 24, 40, 72, 136, 264)
SHAPES = [
    *((m, K[m % len(K)], N[m % len(N)]) for m in range(1, 41)),
    (1, 129, 264),
    (0, 8, 8),
    (150, 65, 200),
    (600, 31, 104),
    (3, 1000, 1000),
    (40, 700, 392),
]


def _bf16(data: Array) -> NDArray[np.float64]:
    return data.astype(ml_dtypes.bfloat16).astype(np.float64)


def reference(x: Array, w: Array, bias: Array) -> NDArray[np.float64]:
    """The product of the rounded operands in float64."""
    with np.errstate(invalid="ignore"):
        return _bf16(x) @ _bf16(w) + bias.astype(np.float64)


def bound(x: Array, w: Array, bias: Array) -> NDArray[np.float64]:
    """How far a product may be from `reference`."""
    a, b = np.abs(_bf16(x)), np.abs(_bf16(w))
    terms = a @ b + np.abs(bias)
    flushed = a.sum(1, keepdims=True) + b.sum(0, keepdims=True) + 2 * a.shape[1] + 1
    return np.expm1((a.shape[1] + 2) * np.log1p(2.0**-24)) * terms + 2.0**-126 * flushed


def product(x: Array, w: Array, bias: Array, threads: tuple[int, ...] = (1,)) -> list[Array]:
    """The runtime's product, once for each number of threads."""
    net = Net()
    inputs = [net.feed(x), net.constant(w.astype(ml_dtypes.bfloat16), "matmul16"), net.constant(bias)]
    return net.run(net.node("MatMul", inputs, K=w.shape[0], N=w.shape[1], bf16_operands=1), threads)


def cases() -> Iterator[tuple[Array, Array, Array]]:
    """Operands of every shape; the last ones hold denormals."""
    rng = np.random.default_rng(21)
    for m, k, n in SHAPES:
        yield tuple(rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (n,)))  # type: ignore[misc]
    x, w, bias = (rng.standard_normal(s).astype(np.float32) for s in ((5, 40), (40, 40), (40,)))
    yield x * np.float32(2.0**-128), w * np.float32(2.0**90), bias * np.float32(2.0**-130)
    yield x * np.float32(2.0**-64), w * np.float32(2.0**-64), bias * np.float32(2.0**-126)


if __name__ == "__main__":
    np.savez(sys.argv[1], *(product(*operands)[0] for operands in cases()))
