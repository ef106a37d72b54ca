"""Many runs with changing shapes: memory does not grow, whichever plans are kept, made again or impossible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opforge as of
from tests.soak import FACTOR, leaks, measure, verdict
from tests.unit.bin.programs import Builder

RUNS = 2000 * FACTOR
F32 = np.float32


def planned(folder: Path) -> of.Session:
    """Views, constants of the plan, scratch and several sizes: 400 sets of shapes go through 16 plans."""
    b = Builder()
    x = b.input("x", F32, ["N", "M"])
    shape = b.node("Shape", [x], np.int64, [2])
    flat = b.node("Reshape", [x, b.constant(np.array([-1]))], F32, [None])
    back = b.node("Reshape", [flat, shape], F32, ["N", "M"])
    soft = b.node("Softmax", [back], F32, ["N", "M"], since=13, axis=-1)
    product = b.node(
        "MatMul", [soft, b.node("Transpose", [x], F32, ["M", "N"], perm=[1, 0])], F32, ["N", "N"], since=13
    )
    b.output(b.node("Concat", [product, product], F32, axis=0))
    return b.session(folder, threads=2)


def dynamic(folder: Path) -> of.Session:
    """A shape that depends on data, so that nodes are placed one by one."""
    b = Builder()
    x = b.input("x", F32, ["N", "M"])
    found = b.node("NonZero", [x], np.int64, [2, None])
    places = b.node("Transpose", [found], np.int64, [None, 2], perm=[1, 0])
    b.output(b.node("GatherND", [x, places], F32, [None]))
    return b.session(folder, threads=2)


@pytest.mark.parametrize("make", [planned, dynamic])
def test_memory_does_not_grow(make, tmp_path, record_property):
    session = make(tmp_path)
    rng = np.random.default_rng(0)
    shapes = [(1 + k % 20, 1 + 13 * (k // 20)) for k in rng.permutation(400)]
    arrays = [rng.standard_normal(shape).astype(F32) for shape in shapes]
    samples = measure(lambda k: session.run({"x": arrays[k % len(arrays)]}), RUNS)
    record_property("memory", verdict(samples, RUNS))
    assert not leaks(samples), f"{verdict(samples, RUNS)}: {samples}"
    assert session.statistics["plans"] <= 16


def test_open_and_close_does_not_grow(tmp_path, record_property):
    planned(tmp_path)
    array = np.ones((3, 5), F32)
    samples = measure(lambda _: of.Session(tmp_path / "model.bin").run({"x": array}), RUNS // 4)
    record_property("memory", verdict(samples, RUNS // 4))
    assert not leaks(samples), f"{verdict(samples, RUNS // 4)}: {samples}"


def test_the_judge_sees_a_leak():
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 40, 60) * 4096
    steady = [100 << 20] * 60 + noise
    assert not leaks(list(steady))
    assert leaks([int(value) + 64 * 1024 * k for k, value in enumerate(steady)])
