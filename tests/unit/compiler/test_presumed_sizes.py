"""Sizes that nobody can prove equal: the result is ONNX's, or an error that names both, never another shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import opforge as of
from opforge.errors import ArgumentError
from opforge.passes._dims import Dim, presumably_equal

Array = np.ndarray[Any, Any]
HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'
RNG = np.random.default_rng(5)
F32 = np.float32


def image(height: int, width: int) -> Array:
    return RNG.standard_normal((1, 16, height, width)).astype(F32)


WEIGHTS = (RNG.standard_normal((16, 16, 3, 3)) / 10).astype(F32)
STRIDES = """g (float[1,16,H,W] x) => (float[1,16,A,B] y) {
  a = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w)
  b = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
  s = Add(a, b)
  r = Relu(s)
  y = Conv <pads = [1,1,1,1]> (r, w)
}"""
STRANGERS = """g (float[1,16,H,W] x, float[1,16,A,B] z) => (float[1,16,C,D] y) {
  a = Conv <pads = [1,1,1,1]> (x, w)
  s = Add(a, z)
  r = Relu(s)
  y = Conv <pads = [1,1,1,1]> (r, w)
}"""
EXPANDED = """g (float[N] x, float[M] q) => (float[K] y, int64[1] s) {
  n = Shape(x)
  k = Shape(q)
  t = Mul(n, k)
  y = Expand(x, t)
  s = Shape(y)
}"""


def sliced(start: int, end: int) -> str:
    return f"""g (float[N,4] x) => (int64[1] s, float[K,4] y)
      <int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] axis = {{0}}> {{
      y = Slice(x, a, b, axis)
      s = Shape <end = 1, start = 0> (y)
    }}"""


def opened(text: str, folder: Path) -> tuple[onnx.ModelProto, of.Session]:
    model = onnx.parser.parse_model(HEADER + text)
    if "w)" in text:
        model.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHTS, "w"))
    of.compile(model, folder / "model.bin")
    return model, of.Session(folder / "model.bin")


def same(model: onnx.ModelProto, session: of.Session, feeds: dict[str, Array]) -> None:
    for got, want in zip(session.run(feeds).values(), ReferenceEvaluator(model).run(None, feeds), strict=True):
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_sizes_of_two_strides(tmp_path: Path) -> None:
    """Equal for even images; of odd ones the sum has no meaning, or that of a broadcast, which is refused."""
    model, session = opened(STRIDES, tmp_path)
    for size in (2, 8, 30):
        same(model, session, {"x": image(size, 12)})
    for size, wrong in ((9, "4 x 6, the result one of 5 x 6"), (3, "1 x 6, the result one of 2 x 6")):
        with pytest.raises(ArgumentError, match=f"is an image of {wrong}: sizes that differ in how they are rounded"):
            session.run({"x": image(size, 12)})


def test_sizes_of_two_inputs(tmp_path: Path) -> None:
    model, session = opened(STRANGERS, tmp_path)
    for one, other in ((image(8, 6), image(8, 6)), (image(9, 5), image(1, 1)), (image(1, 1), image(5, 1))):
        same(model, session, {"x": one, "z": other})
    with pytest.raises(ArgumentError, match="do not broadcast: 3 and 4"):
        session.run({"x": image(3, 3), "z": image(4, 4)})


def test_expand_to_a_product(tmp_path: Path) -> None:
    model, session = opened(EXPANDED, tmp_path)
    for n, m in ((1, 3), (2, 1), (1, 1)):
        same(model, session, {"x": np.ones(n, F32), "q": np.ones(m, F32)})


@pytest.mark.parametrize(
    ("start", "end"), [(0, 3), (1, 3), (-2, 2**63 - 1), (-3, -1), (2, 2**63 - 1), (0, -2), (-2, 3)]
)
def test_slices_longer_than_the_tensor(start: int, end: int, tmp_path: Path) -> None:
    model, session = opened(sliced(start, end), tmp_path)
    for rows in (0, 1, 2, 3, 7):
        same(model, session, {"x": RNG.standard_normal((rows, 4)).astype(F32)})


N, M = Dim.of("N"), Dim.of("M")


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (N, N, True),
        ((N + 1) // 2, N // 2, True),
        ((N // 2) * 2, N, True),
        ((N + 3) // 4 + (M // 2), N // 4 + (M + 1) // 2, True),
        (N, N * 2, False),
        (N, N + 1, False),
        (N, M, False),
        (N, N * M, False),
        (N, Dim.of(3), False),
        (N // M, N, False),
    ],
)
def test_what_is_presumed(a: Dim, b: Dim, equal: bool) -> None:
    assert presumably_equal(a, b) is equal
    assert presumably_equal(b, a) is equal
