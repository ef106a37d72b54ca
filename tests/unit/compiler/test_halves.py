"""Half-precision models: storage stays half, kernels for f32 stand between conversions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from tests.unit.compiler.graphs import compiled, model, native, node, ops
from tests.unit.compiler.program_reference import Runner

RNG = np.random.default_rng(12)
TYPES = [(TensorProto.FLOAT16, np.float16), (TensorProto.BFLOAT16, ml_dtypes.bfloat16)]


def _layer():
    w, b = RNG.standard_normal((24, 40)) * 0.2, RNG.standard_normal(40)
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Gelu", "a", "g"), node("Softmax", "g", "y")]
    return nodes, {"w": w, "b": b}


@pytest.mark.parametrize(("dtype", "numpy"), TYPES)
def test_computed_wide_and_rounded_once(dtype, numpy):
    nodes, constants = _layer()
    constants = {k: v.astype(numpy) for k, v in constants.items()}
    x = RNG.standard_normal((3, 24)).astype(numpy)
    program, report = compiled(model(nodes, {"x": ["N", 24]}, constants, dtype=dtype))
    assert ops(program) == ["Cast", "MatMul", "Formula", "Softmax", "Cast"]
    assert [line.split(":")[1].split()[0] for line in report.conversions] == ["MatMul", "Softmax"]
    wide = np.float32
    m = (x.astype(wide) @ constants["w"].astype(wide)).astype(numpy)
    a = (m.astype(wide) + constants["b"].astype(wide)).astype(numpy).astype(np.float64)
    from math import erf, sqrt

    g = np.vectorize(lambda v: v * 0.5 * (1 + erf(v / sqrt(2))))(a).astype(numpy).astype(np.float64)
    e = np.exp(g - g.max(-1, keepdims=True))
    want = (e / e.sum(-1, keepdims=True)).astype(numpy).astype(np.float64)
    for got in (Runner(program).run({"x": x}), native(program, {"x": x})):
        assert got["y"].dtype == numpy
        step = 2.0**-7 if dtype == TensorProto.BFLOAT16 else 2.0**-10
        np.testing.assert_allclose(got["y"].astype(np.float64), want, rtol=2 * step, atol=1e-4)


def test_moving_data_needs_no_conversion():
    nodes = [node("Transpose", "x", "t", perm=[1, 0]), node("Reshape", "t s", "r"), node("Neg", "r", "y")]
    x = RNG.standard_normal((3, 4)).astype(np.float16)
    program, report = compiled(model(nodes, {"x": [3, 4]}, {"s": np.array([2, 6])}, dtype=TensorProto.FLOAT16))
    assert report.conversions == []
    assert (native(program, {"x": x})["y"] == -x.T.reshape(2, 6)).all()


def test_conversions_between_wide_nodes_stay():
    """Two products in a row round in between, as the model says."""
    w = RNG.standard_normal((8, 8)).astype(np.float16)
    nodes = [node("MatMul", "x w", "m"), node("MatMul", "m w", "y")]
    program, _ = compiled(model(nodes, {"x": ["N", 8]}, {"w": w}, dtype=TensorProto.FLOAT16))
    assert ops(program) == ["Cast", "MatMul", "Formula", "MatMul", "Cast"]
