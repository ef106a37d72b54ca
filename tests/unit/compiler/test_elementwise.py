"""Every standard elementwise operator in bytecode against onnx's reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

from opforge.onnx.elementwise import ROWS
from tests.unit.compiler.graphs import compiled, model, node, ops, same
from tests.unit.compiler.program_reference import Runner

RNG = np.random.default_rng(3)
X = np.concatenate([RNG.uniform(-4, 4, 50), [0.0, -0.0, 3.0, -3.0, 0.5, 1.5, 2.5, 6.5]]).astype(np.float32)
UNIT = RNG.uniform(-0.95, 0.95, 40).astype(np.float32)
POSITIVE = RNG.uniform(0.05, 5, 40).astype(np.float32)
DOMAIN = {"Acos": UNIT, "Asin": UNIT, "Atanh": UNIT, "Acosh": POSITIVE + 1, "Log": POSITIVE, "Sqrt": POSITIVE}
ATTRIBUTES = {
    "LeakyRelu": [{}, {"alpha": 0.3}],
    "Elu": [{}, {"alpha": 1.7}],
    "Celu": [{}, {"alpha": 0.6}],
    "Selu": [{}, {"alpha": 1.1, "gamma": 2.0}],
    "HardSigmoid": [{}, {"alpha": 0.3, "beta": 0.4}],
    "ThresholdedRelu": [{}, {"alpha": 0.5}],
    "Shrink": [{"lambd": 1.0, "bias": 0.3}],
    "Gelu": [{}, {"approximate": "tanh"}],
    "IsInf": [{}, {"detect_negative": 0}, {"detect_positive": 0}],
    "Mod": [{"fmod": 1}],
}
BINARY = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Pow",
    "PRelu",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
]
LOGIC = ["And", "Or", "Xor"]
VARIADIC = ["Max", "Min", "Sum", "Mean"]
OTHER = ["Clip", "Where", "Not", "Cast", "Swish"]
UNARY = sorted(set(ROWS) - set(BINARY) - set(LOGIC) - set(VARIADIC) - set(OTHER))
BOOL = TensorProto.BOOL


def _output_type(op: str) -> int:
    return BOOL if ROWS[op].kind in ("compare", "test", "logic") else TensorProto.FLOAT


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    x = DOMAIN.get(op, X)
    if op in ("IsNaN", "IsInf"):
        x = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    for attributes in ATTRIBUTES.get(op, [{}]):
        proto = model([node(op, "x", "y", **attributes)], {"x": ["N"]}, output_dtype=_output_type(op))
        program, _ = same(proto, {"x": x}, rtol=2e-5)
        assert ops(program) == ["Formula"]


@pytest.mark.parametrize("op", BINARY)
def test_binary_broadcasts(op):
    shape = (5,) if op == "PRelu" else (4, 1)  # a slope does not widen the result
    a, b = RNG.uniform(0.5, 3, (2, 1, 5)).astype(np.float32), RNG.uniform(0.5, 3, shape).astype(np.float32)
    b.flat[0] = a.flat[0]
    attributes = ATTRIBUTES.get(op, [{}])[0]
    proto = model(
        [node(op, "a b", "y", **attributes)], {"a": [2, 1, 5], "b": list(shape)}, output_dtype=_output_type(op)
    )
    program, _ = same(proto, {"a": a, "b": b})
    assert ops(program) == ["Formula"]


@pytest.mark.parametrize("op", LOGIC)
def test_logic(op):
    a, b = np.array([[True, False]]), np.array([[True], [False]])
    proto = model([node(op, "a b", "y")], {"a": (BOOL, [1, 2]), "b": (BOOL, [2, 1])}, output_dtype=BOOL)
    same(proto, {"a": a, "b": b})


@pytest.mark.parametrize("op", VARIADIC)
def test_variadic(op):
    feeds = {n: RNG.standard_normal(6).astype(np.float32) for n in "abc"}
    same(model([node(op, "a b c", "y")], {key: [6] for key in "abc"}), feeds)


@pytest.mark.parametrize("bounds", [{"lo": -1.0, "hi": 1.0}, {"lo": -1.0}, {"hi": 1.0}, {}])
def test_clip(bounds):
    inputs = " ".join(["x", "lo" if "lo" in bounds else "-", "hi" if "hi" in bounds else ""]).strip()
    constants = {k: np.float32(v) for k, v in bounds.items()}
    same(model([node("Clip", inputs, "y")], {"x": [len(X)]}, constants), {"x": X})


def test_swish_is_sigmoid_gate():
    program, _ = compiled(model([node("Swish", "x", "y", alpha=1.5)], {"x": ["N"]}, opset=24))
    got = Runner(program).run({"x": X})["y"]
    np.testing.assert_allclose(got, X / (1 + np.exp(-1.5 * X.astype(np.float64))), rtol=1e-5)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, -1.5])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_constant_powers(exponent, dtype):
    if dtype is np.int64 and not float(exponent).is_integer():
        return
    proto = model([node("Pow", "x p", "y")], {"x": [len(POSITIVE)]}, {"p": dtype(exponent)})
    program, _ = same(proto, {"x": POSITIVE})
    assert ops(program)[:1] in (["Formula"], [])


@pytest.mark.parametrize("source", [np.float32, np.int32, np.int64, np.bool_, np.uint8, np.int8])
@pytest.mark.parametrize("target", [np.float32, np.int32, np.int64, np.bool_, np.uint8])
def test_cast(source, target):
    x = np.array([0, 1, 3, 100, 7.75]).astype(source)
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(source))
    nodes = [node("Cast", "x", "y", to=to), node("Identity", "x", "z")]
    proto = model(nodes[:1], {"x": (kind, [5])}, output_dtype=to)
    same(proto, {"x": x})


def test_where_keeps_integers_exact():
    c, a, b = np.array([True, False]), np.array([2**53 + 1, 5]), np.array([7, -(2**60) - 1])
    kinds = {"c": (BOOL, [2]), "a": (TensorProto.INT64, [2]), "b": (TensorProto.INT64, [2])}
    program, _ = same(
        model([node("Where", "c a b", "y")], kinds, output_dtype=TensorProto.INT64), {"c": c, "a": a, "b": b}
    )
    assert ops(program) == ["Formula"]


def test_large_integer_constant_stays_a_tensor():
    big = np.array(2**60 + 1)
    proto = model([node("Equal", "a big", "y")], {"a": (TensorProto.INT64, [2])}, {"big": big}, output_dtype=BOOL)
    same(proto, {"a": np.array([2**60 + 1, 2**60])})


def test_half_rounds_at_every_seam():
    x = RNG.standard_normal(200).astype(ml_dtypes.bfloat16)
    nodes = [node("Mul", "x x", "a"), node("Add", "a x", "b"), node("Exp", "b", "y")]
    program, _ = compiled(model(nodes, {"x": ["N"]}, dtype=TensorProto.BFLOAT16))
    assert ops(program) == ["Formula"]
    wide = np.float32
    a = (x.astype(wide) * x.astype(wide)).astype(x.dtype)
    b = (a.astype(wide) + x.astype(wide)).astype(x.dtype)
    want = np.exp(b.astype(np.float64)).astype(x.dtype)
    assert (Runner(program).run({"x": x})["y"] == want).all()


def test_gelu_keeps_its_tail():
    """The tanh form written as a sigmoid keeps relative accuracy where 1+tanh cancels."""
    x = np.linspace(-8, -4, 50).astype(np.float32)
    program, _ = compiled(model([node("Gelu", "x", "y", approximate="tanh")], {"x": ["N"]}))
    u = np.sqrt(2 / np.pi) * (x.astype(np.longdouble) + 0.044715 * x.astype(np.longdouble) ** 3)
    want = x / (1 + np.exp(-2 * u))
    np.testing.assert_allclose(Runner(program).run({"x": x})["y"], want.astype(np.float64), rtol=1e-5)
