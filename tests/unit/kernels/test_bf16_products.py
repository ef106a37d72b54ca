"""Products of operands rounded to bf16: within the derived bound on every level, by the CPU's instruction or in f32."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.bin.native import native
from tests.unit.kernels.bf16_products import bound, cases, product, reference
from tests.unit.kernels.graphs import Net
from tests.unit.kernels.test_cases import others

THREADS = (1, 2, 3)


def _within(got, operands):
    assert got.shape == (len(operands[0]), operands[1].shape[1])
    excess = np.abs(got.astype(np.float64) - reference(*operands)) - bound(*operands)
    assert (excess <= 0).all(), f"{operands[0].shape} {operands[1].shape}: {excess.max()} above the bound"


def test_levels_and_threads(tmp_path):
    """Every level stays within the bound, threads change no bit, and levels without the instruction agree in bits."""
    own = []
    for operands in cases():
        results = product(*operands, THREADS)
        assert len({r.tobytes() for r in results}) == 1
        _within(results[0], operands)
        own.append(results[0])
    found = {native().isa(): own}
    for level in others():
        path = tmp_path / f"{level}.npz"
        command = [sys.executable, "-m", "tests.unit.kernels.bf16_products", str(path)]
        done = subprocess.run(
            command, env={**os.environ, "OPFORGE_ISA": level}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{level}: {done.stderr[-2000:]}"
        with np.load(path) as stored:
            found[level] = [stored[f"arr_{i}"] for i in range(len(own))]
        for got, operands in zip(found[level], cases(), strict=True):
            _within(got, operands)
    if "v3" in found and "v4" in found:
        same = all(np.array_equal(a, b) for a, b in zip(found["v3"], found["v4"], strict=True))
        assert same != ("avx512_bf16" in Path("/proc/cpuinfo").read_text().split())


@pytest.mark.parametrize("rows", [1, 3, 20])
@pytest.mark.parametrize("columns", [8, 40])
def test_what_is_not_finite(rows, columns):
    """NaN and infinities come out where float64 has them; what rounds beyond bf16's range is an infinity."""
    rng = np.random.default_rng(rows)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((rows, 35), (35, columns)))
    bias = rng.standard_normal(columns).astype(np.float32)
    for value in (np.nan, np.inf, -np.inf, 3.4e38, -3.4e38):
        for at in (0, 7, 34):
            given = x.copy()
            given[-1, at] = value
            got, want = product(given, w, bias)[0], reference(given, w, bias)
            assert not np.isfinite(want[-1]).any()
            np.testing.assert_array_equal(got[-1].astype(np.float64), want[-1])
            if rows > 1:
                _within(got[:-1], (given[:-1], w, bias))
    weights = w.copy()
    weights[34, 3] = np.inf
    np.testing.assert_array_equal(product(x, weights, bias)[0][:, 3], reference(x, weights, bias)[:, 3])


@pytest.mark.parametrize(("kind", "value"), [(np.float32, 1), (np.float16, 1)])
def test_refused(kind, value):
    net = Net()
    x, w = np.ones((2, 8), np.float32), np.ones((8, 8), kind)
    out = net.node("MatMul", [net.feed(x), net.constant(w, "matmul16")], K=8, N=8, bf16_operands=value)
    with pytest.raises(of.errors.OpforgeError, match="bf16_operands is not 0, or 1 with weights of bf16"):
        net.run(out)
