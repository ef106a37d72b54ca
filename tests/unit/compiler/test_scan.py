"""Scan of every opset: axes, directions, batches; what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opforge.errors import UnsupportedError
from tests.unit.compiler.graphs import compiled, parsed, run

F32 = np.float32
RNG = np.random.default_rng(3)

SCAN8 = """
<ir_version: 4, opset_import: ["": 8]>
g (float[B,2] s, float[B,T,2] x{lengths}) => (float[B,2] last, float[B,T,2] all) {{
  last, all = Scan <num_scan_inputs = 1, directions = [1], body = body
    (float[2] state, float[2] row) => (float[2] next, float[2] out) {{
      next = Add(state, row)
      out = Identity(next)
    }}> ({given}, s, x)
}}
"""


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("axes", [(0, 0), (1, 1), (-1, -1), (1, 2)])
def test_scan_of_any_axis_and_direction(direction: int, axes: tuple[int, int], tmp_path: Path) -> None:
    text = f"""
    <ir_version: 10, opset_import: ["": 21]>
    g (float[2] s, float[3,2] a, float[3] b, float[2,3] c) => (float[2] last, float[K,L,M] all, float[3] sums) {{
      last, all, sums = Scan <num_scan_inputs = 2, scan_input_axes = [{axes[0]}, 0],
          scan_input_directions = [{direction}, 1], scan_output_axes = [{axes[1]}, 0],
          scan_output_directions = [{direction}, {1 - direction}], body = body
        (float[2] state, float[P] row, float v) => (float[2] next, float[2,P] out, float t) {{
          none = Constant <value_ints = [0]> ()
          m = ReduceSum <keepdims = 0> (row, none)
          t = Add(m, v)
          next = Add(state, t)
          column = Constant <value_ints = [2, 1]> ()
          o = Reshape(next, column)
          out = Mul(o, row)
        }}> (s, a, b)
    }}
    """
    a = RNG.standard_normal((3, 2) if axes[0] == 0 else (2, 3)).astype(F32)
    text = text.replace("float[3,2] a", f"float[{a.shape[0]},{a.shape[1]}] a")
    s, b = RNG.standard_normal(2).astype(F32), RNG.standard_normal(3).astype(F32)
    got = run(parsed(text), {"s": s, "a": a, "b": b, "c": np.zeros((2, 3), F32)}, tmp_path)
    rows = np.moveaxis(a, axes[0], 0)[:: -1 if direction else 1]
    state, every, sums = s.astype(np.float64), [], []
    for row, v in zip(rows, b[::-1], strict=True):
        sums.append(row.sum(dtype=np.float64) + v)
        state = state + sums[-1]
        every.append(state[:, None] * row)
    every, sums = every[:: -1 if direction else 1], sums[:: 1 if direction else -1]
    np.testing.assert_allclose(got["last"], state, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["all"], np.stack(every, axis=axes[1]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["sums"], sums, rtol=1e-5, atol=1e-5)


def test_scan_of_opset_8_runs_over_its_batch(tmp_path: Path) -> None:
    model = parsed(SCAN8.format(lengths="", given='""'))
    s, x = np.ones((2, 2), F32), RNG.standard_normal((2, 3, 2)).astype(F32)
    got = run(model, {"s": s, "x": x}, tmp_path)
    expected = s[:, None] + np.cumsum(x[:, ::-1], axis=1)
    np.testing.assert_allclose(got["all"], expected, rtol=1e-5)
    np.testing.assert_allclose(got["last"], expected[:, -1], rtol=1e-5)


def test_scan_of_opset_8_with_lengths_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="sequences differ in length") as caught:
        compiled(parsed(SCAN8.format(lengths=", int64[B] n", given="n")))
    assert "no sequence_lens" in str(caught.value)
