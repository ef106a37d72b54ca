"""Models of TensorFlow's converter: our operations become custom nodes, which sessions run by our kernels."""

import os

import numpy as np
import pytest

import opforge as of

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytest.importorskip("ai_edge_litert")
tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.compiler


def converted(function, *specs):
    module = tf.Module()
    module.f = tf.function(function, input_signature=specs, autograph=False)
    made = tf.lite.TFLiteConverter.from_concrete_functions([module.f.get_concrete_function()], module)
    made.allow_custom_ops = True
    return made.convert()


@pytest.fixture(scope="module")
def functions(hand_library):
    """The hand-written operators as functions, known to TensorFlow and to LiteRT."""
    import opforge.litert
    import opforge.tensorflow
    from opforge.build import load_library

    library = load_library(hand_library)
    opforge.litert.register_library(library)
    return {e.library.name: opforge.tensorflow.function(e.key) for e in opforge.tensorflow.register_library(library)}


def run(data, **inputs):
    session = of.litert.session(data)
    return session.run(inputs or {session.inputs[0].name: np.ones(1, np.float32)})


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"i": 7, "f": 0.5, "s": "grün", "b": False, "li": [7, 8], "lf": [0.25], "lb": [True, False], "ls": ["a", "bc"]},
        {"li": [], "ls": [], "lf": [], "lb": [], "s": ""},
    ],
    ids=["defaults", "given", "empty"],
)
def test_attributes_of_every_kind(functions, attributes):
    data = converted(lambda x: functions["Attributes"](x, **attributes), tf.TensorSpec([1], tf.float32, "x"))
    want = functions["Attributes"](tf.ones([1]), **attributes).numpy()
    (got,) = run(data).values()
    np.testing.assert_array_equal(got, want)


def test_optional_and_variadic_inputs(functions):
    x, b = tf.TensorSpec([None, 4], tf.float32, "x"), tf.TensorSpec([4], tf.float32, "b")
    ones, bias = np.ones((2, 4), np.float32), np.arange(4, dtype=np.float32)
    (got,) = run(converted(lambda x, b: functions["AddBias"](x, b), x, b), x=ones, b=bias).values()
    np.testing.assert_array_equal(got, ones + bias)
    (got,) = run(converted(lambda x: functions["AddBias"](x, None), x), x=ones).values()
    np.testing.assert_array_equal(got, ones)
    got = run(converted(lambda x: functions["Total"]([x, 2 * x, 3 * x]), x), x=ones)
    np.testing.assert_array_equal(got["output_0"], 6 * ones)
    np.testing.assert_array_equal(got["output_1"], 3 * ones)


def test_a_network_with_nodes_of_one_operator_and_constants(tmp_path):
    clip, mod = (of.load(f"opforge.ops:{name}")[0] for name in ("ClipSigmoid", "ModSigmoid"))
    rng = np.random.default_rng(0)
    weights, threshold = (tf.constant(rng.standard_normal(s).astype(np.float32)) for s in ((5, 4), (4,)))

    def network(x):
        h = tf.matmul(x, weights)
        return {"y": mod(clip(h, lo=0.2, hi=0.7) + clip(h), threshold)}

    data = converted(network, tf.TensorSpec([None, 5], tf.float32, "x"))
    (tmp_path / "network.tflite").write_bytes(data)
    session = of.litert.session(tmp_path / "network.tflite")
    assert session.outputs == ["y"] and session.inputs[0].shape == (None, 5)
    for rows in (1, 7, 3):
        x = rng.standard_normal((rows, 5)).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], network(tf.constant(x))["y"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("types", [("float64", "int32"), ("float16", "int64")])
def test_a_saved_model_with_several_dtypes(tmp_path, types):
    """A SavedModel leaves attributes out that have their defaults."""
    sparse, clip = (of.load(f"opforge.ops:{name}")[0] for name in ("SparseMatMul", "ClipSigmoid"))
    floats, index = (tf.as_dtype(name) for name in types)
    specs = [tf.TensorSpec(*s) for s in (([None], floats, "v"), ([None], index, "i"), ([None], index, "p"),
                                         ([None, 3], floats, "d"))]  # fmt: skip
    module = tf.Module()
    module.f = tf.function(lambda v, i, p, d: {"y": clip(sparse(v, i, p, d))}, input_signature=specs)
    tf.saved_model.save(module, str(tmp_path / "saved"), signatures=module.f.get_concrete_function())
    made = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"))
    made.allow_custom_ops = True
    inputs = {
        "v": np.array([1, 2, 3], types[0]), "i": np.array([0, 1, 1], types[1]),
        "p": np.array([0, 2, 3], types[1]), "d": np.array([[1, -1, 0.5], [0.25, 0, 2]], types[0]),
    }  # fmt: skip
    got = run(made.convert(), **inputs)["y"]
    want = module.f(*(tf.constant(v) for v in inputs.values()))["y"].numpy()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
