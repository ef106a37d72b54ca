"""TensorFlow to ONNX to .bin: Keras models, functions and SavedModels, with the operators as nodes of their domain."""

import numpy as np
import pytest

import opforge as of
from opforge.errors import ArgumentError, ExportError
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("tf2onnx")


def values(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def agrees(model, path, x, wanted):
    """The exported model, compiled, gives what TensorFlow gives."""
    of.compile(path, path.with_suffix(".bin"))
    (name,) = [i.name for i in model.graph.input]
    (got,) = of.Session(path.with_suffix(".bin")).run({name: x}).values()
    np.testing.assert_allclose(got, wanted, atol=1e-5)


def custom(model):
    return [n for n in model.graph.node if n.domain == "com.example"]


def test_a_sequential_model_with_nodes_bodies_and_metadata(tmp_path):
    net = keras.Sequential(
        [
            keras.Input((6,), name="features"),
            keras.layers.Dense(8),
            of.tensorflow.Layer(custom_gelu),
            keras.layers.Dense(5),
            of.tensorflow.Layer(clip_sigmoid, lo=0.25),
        ]
    )
    model = of.tensorflow.export(net, tmp_path / "net.onnx")
    gelu, clip = custom(model)
    assert (gelu.op_type, clip.op_type) == ("CustomGELU", "ClipSigmoid")
    assert {a.name: (a.type, a.f) for a in clip.attribute}["lo"] == (1, 0.25)
    assert {f.name for f in model.functions} == {"CustomGELU", "ClipSigmoid"}
    assert {i.domain: i.version for i in model.opset_import if i.domain != "ai.onnx.ml"} == {"": 18, "com.example": 1}
    assert "opforge.operators" in {p.key for p in model.metadata_props}
    assert [i.name for i in model.graph.input] == ["features"]
    for rows in (1, 3):
        agrees(model, tmp_path / "net.onnx", values(rows, 6), net(values(rows, 6)))


def test_functional_models_functions_and_saved_models(tmp_path):
    x = values(2, 8, 8, 3)
    entry = keras.Input((8, 8, 3))
    made = custom_gelu(keras.layers.Conv2D(4, 3, padding="same")(entry))
    net = keras.Model(entry, keras.layers.GlobalAveragePooling2D()(keras.layers.MaxPooling2D()(made)))
    agrees(of.tensorflow.export(net, tmp_path / "f.onnx"), tmp_path / "f.onnx", x, net(x))
    of.tensorflow.save(net, tmp_path / "saved")
    agrees(of.tensorflow.export(tmp_path / "saved", tmp_path / "s.onnx"), tmp_path / "s.onnx", x, net(x))
    gate = lambda v: mod_sigmoid(v, tf.constant(0.5))  # noqa: E731
    model = of.tensorflow.export(gate, tmp_path / "g.onnx", input_signature=[tf.TensorSpec([None, 3], name="v")])
    agrees(model, tmp_path / "g.onnx", values(4, 3), gate(values(4, 3)))


NET = """
import keras
import opforge as of
from opforge.ops import custom_gelu

def make():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), of.tensorflow.Layer(custom_gelu)])

def saved():
    return "saved"
"""


def test_the_command_takes_factories_and_folders(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from opforge.cli.commands.export import command

    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    net = keras.Sequential([keras.Input((4,)), of.tensorflow.Layer(custom_gelu)])
    of.tensorflow.save(net, tmp_path / "saved")
    for target in ("net.py:make", "net.py:saved", "saved"):
        result = CliRunner().invoke(command, [target, "-o", "m.onnx"], standalone_mode=False)
        assert result.exception is None, result.exception
        assert "custom nodes: com.example::CustomGELU x 1" in result.output


def test_what_cannot_be_exported_says_why():
    with pytest.raises(ArgumentError, match=r"what the inputs are is not known[\s\S]*input_signature="):
        of.tensorflow.export(lambda v: v)
    with pytest.raises(ArgumentError, match=r"does not write this opset[\s\S]*13 to 18"):
        of.tensorflow.export(lambda v: v, opset=21)
    spec = [tf.TensorSpec([4], tf.float32)]
    with pytest.raises(ExportError, match=r"cannot convert operations of this model[\s\S]*Betainc"):
        of.tensorflow.export(lambda v: tf.math.betainc(v, v, v), input_signature=spec)
