"""Random numbers: their distribution, seeds, dtypes; Dropout."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.errors import OpforgeError
from tests.unit.kernels.one_node import check, model_of, run

RNG = np.random.default_rng(12)
N = 40_000


def twice(op: str, arrays: list, outputs=(None,), **options) -> list[np.ndarray]:
    """The first output of two runs of one session, with one thread and with four."""
    model, feeds = model_of(op, arrays, outputs, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.bin"
        of.compile(model, path)
        return [of.Session(path, threads=n).run(dict(feeds))["o0"] for n in (1, 4)] + [
            next(iter(s.run(dict(feeds)).values())) for s in [of.Session(path)] for _ in range(2)
        ]


@pytest.mark.parametrize(("dtype", "code"), [(np.float32, 1), (np.float64, 11), (np.float16, 10)])
def test_uniform(dtype, code):
    for op, arrays in (("RandomUniform", []), ("RandomUniformLike", [np.zeros((N, 1), np.float32)])):
        shape = {"shape": [N, 1]} if not arrays else {}
        got = twice(op, arrays, [dtype], low=-1.0, high=3.0, seed=7.0, dtype=code, **shape)
        assert got[0].shape == (N, 1) and got[0].dtype == dtype
        for other in got[1:]:
            np.testing.assert_array_equal(got[0], other)  # a seed fixes the numbers, whatever the threads
        values = got[0].astype(np.float64)
        assert values.min() >= -1 and values.max() <= 3
        counts = np.histogram(values, 20, (-1, 3))[0]
        assert ((counts - N / 20) ** 2 / (N / 20)).sum() < 60  # chi-square, 19 degrees of freedom


def test_normal():
    for op, arrays in (("RandomNormal", []), ("RandomNormalLike", [np.zeros(N, np.float64)])):
        options = {"shape": [N], "dtype": 11} if not arrays else {}
        values = run(op, arrays, [np.float64], mean=2.0, scale=3.0, seed=1.0, **options)[0]
        z = (values - 2) / 3
        assert abs(z.mean()) < 0.03 and abs(z.std() - 1) < 0.02
        assert abs((z**3).mean()) < 0.1 and abs((z**4).mean() - 3) < 0.2


def test_without_a_seed_every_run_differs():
    got = twice("RandomNormal", [], [np.float32], shape=[1000])
    for k in range(1, 4):
        assert not np.array_equal(got[0], got[k])
    other = run("RandomUniform", [], [np.float32], shape=[1000], seed=2.0)[0]
    assert not np.array_equal(other, run("RandomUniform", [], [np.float32], shape=[1000], seed=3.0)[0])


@pytest.mark.parametrize(("dtype", "code"), [(np.float32, 1), (np.int32, 6), (np.bool_, 9), (np.float16, 10)])
def test_bernoulli(dtype, code):
    p = np.tile(np.array([0, 0.25, 0.5, 1], np.float32), N // 4)
    got = run("Bernoulli", [p], [dtype], seed=5.0, dtype=code)[0]
    assert got.dtype == dtype
    rates = got.astype(np.float64).reshape(-1, 4).mean(0)
    assert rates[0] == 0 and rates[3] == 1
    np.testing.assert_allclose(rates[1:3], [0.25, 0.5], atol=0.02)


@pytest.mark.parametrize(("dtype", "code"), [(np.int32, 6), (np.int64, 7)])
def test_multinomial(dtype, code):
    p = np.array([[0.1, 0.2, 0.3, 0.4], [0, 0, 1, 0], [0.7, 0, 0, 0.3]])
    with np.errstate(divide="ignore"):
        logs = (np.log(p) + 5).astype(np.float32)
    got = run("Multinomial", [logs], [dtype], sample_size=N, seed=3.0, dtype=code)[0]
    assert got.shape == (3, N) and got.dtype == dtype
    rates = np.stack([np.bincount(row, minlength=4) / N for row in got])
    np.testing.assert_allclose(rates, p, atol=0.015)


def test_random_shapes_are_checked():
    with pytest.raises(OpforgeError):
        run("RandomUniform", [], [np.float32], shape=[-1])
    assert run("RandomUniform", [], [np.float32], shape=[0, 3])[0].shape == (0, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_dropout_in_training(dtype):
    x = RNG.standard_normal((100, 200)).astype(dtype)
    for constants in ((), (1, 2)):
        arrays = [x, np.array(0.25, np.float32), np.array(True)]
        y, mask = run("Dropout", arrays, (None, np.bool_), seed=4, constants=constants)
        assert abs(mask.mean() - 0.75) < 0.02
        np.testing.assert_allclose(y, np.where(mask, x / dtype(0.75), 0).astype(dtype), rtol=2e-3)
        idle = [x, np.array(0.25, np.float32), np.array(False)]
        check("Dropout", idle, (None, np.bool_), want=[x, np.ones_like(mask)], constants=constants)
    with pytest.raises(OpforgeError, match=r"the ratio is 1, expected \[0, 1\)"):
        run("Dropout", [x, np.array(1, np.float32), np.array(True)])
