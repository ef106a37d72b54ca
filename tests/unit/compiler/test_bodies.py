"""Operators that run through bodies of ours, against NumPy and onnx's reference."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.kernels.one_node import check, compiled, model_of, run

RNG = np.random.default_rng(9)


def normal(*shape: int, dtype=np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->i", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("iji->j", (4, 3, 4)),
    ("...ii->...i", (2, 3, 4, 4)),
    ("i,j->ij", (3,), (4,)),
    ("i,i", (5,), (5,)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("b...ij,b...jk->b...ik", (2, 6, 3, 4), (2, 6, 4, 5)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bihd,bjhd->bhij", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("abcd,cdef->abef", (2, 3, 4, 5), (4, 5, 2, 3)),
    ("abcd,dcef->faeb", (2, 3, 4, 5), (5, 4, 2, 3)),
    ("ij,kj->ikj", (3, 4), (2, 4)),
    ("ijk,k->ij", (2, 3, 4), (4,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,ik,il->jkl", (2, 3), (2, 4), (2, 5)),
    ("ij,kl->", (2, 3), (4, 5)),
    ("...ij,...jk->...ik", (5, 1, 3, 4), (1, 2, 4, 2)),
    ("...,...->...", (2, 3), (1, 3)),
    (" i j , j k -> i k ", (2, 3), (3, 2)),
    ("ij,jk->ik", (0, 4), (4, 5)),
    ("ij,jk->ik", (3, 0), (0, 5)),
    ("aBc,cd->aBd", (2, 3, 4), (4, 5)),
]


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_einsum(equation, shapes, dtype):
    arrays = [np.round(normal(*s, dtype=np.float64) * 3).astype(dtype) for s in shapes]
    want = np.einsum(equation.replace(" ", ""), *arrays)
    check("Einsum", arrays, want=[np.asarray(want, dtype)], tolerance=2e-6, equation=equation)


def test_einsum_of_open_sizes():
    """Sizes that are known at run time only."""
    model, feeds = model_of("Einsum", [normal(2, 3, 4, 5), normal(4, 5, 6)], equation="abcd,cde->bae")
    for value in model.graph.input:
        for k, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.ClearField("dim_value")
            dim.dim_param = f"{value.name}_{k}"
    got = compiled(model, feeds)[0]
    np.testing.assert_allclose(got, np.einsum("abcd,cde->bae", *feeds.values()), rtol=1e-5, atol=1e-5)


def test_einsum_refuses():
    with pytest.raises(OpforgeError, match=r"does not fit the inputs|contradicts"):
        run("Einsum", [normal(2, 3)], equation="ijk->i")
    with pytest.raises(OpforgeError, match=r"does not fit the inputs|contradicts"):
        run("Einsum", [normal(2, 3)], equation="ij->k")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_normalization(dtype, p, axis):
    x = normal(3, 4, 5, dtype=dtype)
    x[:, 1, 2] = x[0] = 0
    norm = np.linalg.norm(x.astype(np.float64), p, axis, keepdims=True)
    want = np.divide(x, norm, out=np.zeros(x.shape), where=norm != 0).astype(dtype)
    tolerance = 2e-3 if dtype == np.float16 else 1e-6
    check("LpNormalization", [x], want=[want], tolerance=tolerance, p=p, axis=axis)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_global_lp_pool(p):
    x = normal(2, 3, 4, 5)
    want = (np.abs(x.astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    check("GlobalLpPool", [x], want=[want.astype(np.float32)], tolerance=1e-6, p=p)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 5, 6), (2, 3, 2, 5, 6), (1, 1, 1, 4)])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_affine_grid(align, size, constants):
    import torch

    spatial = len(size) - 2
    theta = normal(size[0], spatial, spatial + 1)
    want = torch.nn.functional.affine_grid(torch.from_numpy(theta), list(size), align_corners=bool(align)).numpy()
    if align and 1 in size[2:]:
        return  # PyTorch has 0 here, the standard -1
    arrays = [theta, np.array(size, np.int64)]
    check("AffineGrid", arrays, want=[want], tolerance=1e-6, align_corners=align, constants=constants)


@pytest.mark.parametrize("base", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("exponent", [np.float32, np.float64, np.int32, np.uint32, np.uint64, np.int64])
def test_pow_of_mixed_types(base, exponent):
    x, y = np.array([1, 2, 3, 7], base), np.array([[2], [3]], exponent)
    check("Pow", [x, y], want=[np.power(x.astype(np.float64), y.astype(np.float64)).astype(base)], tolerance=1e-6)


def test_batch_statistics():
    x, scale, shift, mean, variance = normal(4, 3, 5, 2), *(normal(3) for _ in range(4))
    batch, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
    wide = [v.reshape(1, 3, 1, 1) for v in (scale, shift, batch, spread)]
    want = (x - wide[2]) / np.sqrt(wide[3] + 1e-3) * wide[0] + wide[1]
    running = [(a * np.float32(0.8) + b * np.float32(0.2)) for a, b in ((mean, batch), (variance, spread))]
    arrays = [x, scale, shift, mean, variance]
    options = {"training_mode": 1, "epsilon": 1e-3, "momentum": 0.8, "tolerance": 2e-6}
    check("BatchNormalization", arrays, (None,) * 3, want=[want, *running], **options)


def double(*shape: int) -> np.ndarray:
    return normal(*shape, dtype=np.float64)


def norm_of(x: np.ndarray, axes: tuple[int, ...], centre: bool = True) -> np.ndarray:
    x = x - x.mean(axes, keepdims=True) if centre else x
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-5)


X = double(2, 6, 4, 5)
ROW, CHANNEL = double(4, 5), [double(6) for _ in range(4)]
CHANNEL[3] = np.abs(CHANNEL[3])
WIDE = [v.reshape(6, 1, 1) for v in CHANNEL]
POWERS = np.exp(X - X.max(1, keepdims=True))
SOFT = POWERS / POWERS.sum(1, keepdims=True)
DOUBLES = {
    "Softmax": ([X], {"axis": 1}, SOFT),
    "LogSoftmax": ([X], {"axis": 1}, np.log(SOFT)),
    "LayerNormalization": ([X, ROW, ROW], {"axis": 2}, norm_of(X, (2, 3)) * ROW + ROW),
    "RMSNormalization": ([X, ROW], {"axis": -2}, norm_of(X, (2, 3), False) * ROW),
    "InstanceNormalization": ([X, *CHANNEL[:2]], {}, norm_of(X, (2, 3)) * WIDE[0] + WIDE[1]),
    "GroupNormalization": (
        [X, *CHANNEL[:2]],
        {"num_groups": 2},
        norm_of(X.reshape(2, 2, -1), (2,)).reshape(X.shape) * WIDE[0] + WIDE[1],
    ),
    "BatchNormalization": (
        [X, *CHANNEL],
        {},
        (X - WIDE[2]) / np.sqrt(WIDE[3] + 1e-5) * WIDE[0] + WIDE[1],
    ),
    "GlobalAveragePool": ([X], {}, X.mean((2, 3), keepdims=True)),
    "GlobalMaxPool": ([X], {}, X.max((2, 3), keepdims=True)),
}


@pytest.mark.parametrize("op", DOUBLES)
def test_double_precision(op):
    arrays, attributes, want = DOUBLES[op]
    for constants in ((), tuple(range(1, len(arrays)))):
        check(op, arrays, want=[want], tolerance=1e-8, constants=constants, **attributes)  # epsilon is a float32


def test_layer_norm_of_doubles_gives_statistics():
    mean, deviation = X.mean(-1, keepdims=True), X.std(-1, keepdims=True)
    want = [(X - mean) / deviation, mean.astype(np.float32), (1 / deviation).astype(np.float32)]
    arrays = [X, np.ones(5)]
    outputs = (None, np.float32, np.float32)
    check("LayerNormalization", arrays, outputs, want=want, tolerance=1e-6, epsilon=0.0)
