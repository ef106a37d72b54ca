"""sum_to: the order of docs/design/bytecode.md bit for bit, whatever the shapes, strides and reduced dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.expr.program import Instruction, Output, Program
from tests.unit.bytecode.programs import NUMPY, T, interpreted, same_bits

# x * y, whole, and summed to either shape.
PROGRAM = Program(
    (T, T), (), (), (Instruction("mul", (0, 1), T),), (Output(2, None, T), Output(2, 0, T), Output(2, 1, T))
)


def ordered_sum(values: np.ndarray) -> np.ndarray:
    """The sum over the last axis, as the design says."""
    dtype, n = values.dtype, values.shape[-1]
    if n == 0:
        return np.zeros(values.shape[:-1], dtype)
    total = None
    for start in range(0, n, 4096):
        block = values[..., start : start + 4096]
        pad = -block.shape[-1] % 16
        block = np.concatenate([block, np.full((*block.shape[:-1], pad), -0.0, dtype)], axis=-1)
        lanes = np.full((*block.shape[:-1], 16), -0.0, dtype)
        for e in range(0, block.shape[-1], 16):
            lanes = lanes + block[..., e : e + 16]
        for half in (8, 4, 2, 1):
            lanes = lanes[..., :half] + lanes[..., half : 2 * half]
        total = lanes[..., 0] if total is None else total + lanes[..., 0]
    return total


def reduce_to(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    lead = values.ndim - len(shape)
    reduced = [*range(lead), *(k + lead for k, d in enumerate(shape) if d == 1 and values.shape[k + lead] != 1)]
    kept = [k for k in range(values.ndim) if k not in reduced]
    moved = np.transpose(values, [*kept, *reduced]).reshape([values.shape[k] for k in kept] + [-1] if values.size else
                                                            [values.shape[k] for k in kept] + [0])  # fmt: skip
    if not reduced:
        return values.reshape(shape)
    return ordered_sum(np.ascontiguousarray(moved)).reshape(shape)


SHAPES = [
    ((5000,), ()), ((5000,), (1,)), ((3, 5000), (3, 1)), ((5000, 3), (3,)), ((9000, 40), (40,)),
    ((20, 300, 7), (300, 1)),
    ((20, 30, 70), (30, 1)), ((4, 1, 100), (1, 50, 1)), ((1,), (1,)), ((), ()), ((3, 1), (1, 4)), ((70, 200), (1, 200)),
    ((17, 5), (5,)), ((2, 3, 4, 5), (3, 1, 5)), ((10000, 2), (10000, 1)), ((40, 40), (40, 1)), ((33000,), (1,)),
    ((600, 130), (1, 1)), ((1, 64), (9000, 1)), ((5, 0), (1, 1)), ((0, 4), (4,)), ((0,), ()),
]  # fmt: skip


@pytest.mark.parametrize("storage", ["f32", "f64", "bf16", "f16"])
def test_order(storage: str) -> None:
    kernels = interpreted(PROGRAM, (storage,))
    compute = np.float64 if storage == "f64" else np.float32
    rng = np.random.default_rng(3)
    for a, b in SHAPES:
        for transposed in (False, True):
            x = rng.standard_normal(a).astype(NUMPY[storage])
            y = rng.standard_normal(b).astype(NUMPY[storage])
            if transposed:
                x, y = np.array(x, order="F"), np.array(y, order="F")
            product = x.astype(compute) * y.astype(compute)
            expected = [product, reduce_to(product, a), reduce_to(product, b)]
            for wanted in ((0, 1, 2), (1,), (2,), (0, 2)):
                got = kernels(storage, [x, y], wanted=wanted)
                for k in wanted:
                    assert got[k].shape == expected[k].shape
                    assert same_bits(got[k], expected[k].astype(NUMPY[storage])), (a, b, transposed, wanted, k)
                assert all(got[k] is None for k in range(3) if k not in wanted)


def test_signs_of_zero() -> None:
    """A sum of one element is that element; a sum of none is +0."""
    kernels = interpreted(PROGRAM, ("f32",))
    one = kernels("f32", [np.full((1, 3), -0.0, np.float32), np.ones((3,), np.float32)])
    assert all(np.signbit(result).all() for result in one)
    none = kernels("f32", [np.zeros((0, 3), np.float32), np.ones((3,), np.float32)])
    assert not np.signbit(none[2]).any() and none[2].shape == (3,)
