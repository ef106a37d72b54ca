"""TensorFlow to ONNX to .bin: Keras models, functions and SavedModels, with the operators as nodes of their domain."""

import numpy as np
import pytest

import opforge as of
from opforge.errors import ArgumentError, ExportError
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid
from opforge.schema import registry

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


@pytest.mark.parametrize(
    ("dtype", "index", "bias", "more", "attributes"),
    [
        ("float32", "int32", 0, 1, {}),
        ("float64", "int32", 1, 2, {"lf": [0.1], "ls": [], "lb": []}),
        (
            "float16", "int64", 1, 3,
            {"i": -7, "f": 0.1, "s": "größe", "b": False, "li": [], "lf": [0.5, 0.25], "ls": ["", "é"], "lb": [True]},
        ),
    ],
)  # fmt: skip
def test_parameters_outputs_and_attributes_of_every_kind(tmp_path, dtype, index, bias, more, attributes):
    from opforge.build import library_for
    from tests.unit.tensorflow.kinds import kinds

    def function(x, at, *rows):
        picked, scaled, facts, counts = kinds(x, at, rows[0] if bias else None, *rows[bias:], **attributes)
        return {"picked": picked, "facts": facts, "counts": counts} | ({"scaled": scaled} if bias else {})

    inputs = {"x": values(4, 3).astype(dtype), "at": np.array([0, 2, 1, 2], index)}
    inputs |= {f"row{k}": values(4).astype(dtype) for k in range(bias + more)}
    specs = [tf.TensorSpec([None, *a.shape[1:]], a.dtype, name) for name, a in inputs.items()]
    model = of.tensorflow.export(function, tmp_path / "m.onnx", input_signature=specs)
    (node,) = model.graph.node
    assert (node.domain, node.op_type, bool(node.input[2]), bool(node.output[1])) == ("test.tf", "Kinds", *(bias,) * 2)
    kinds_of = {a.name: a.type for a in node.attribute}
    assert kinds_of == {"i": 2, "f": 1, "s": 3, "b": 2, "li": 7, "lf": 6, "ls": 8, "lb": 7}
    of.compile(tmp_path / "m.onnx", tmp_path / "m.bin")
    got = of.Session(tmp_path / "m.bin", libraries=[library_for([kinds]).path]).run(inputs)
    wanted = function(*map(tf.constant, inputs.values()))
    exact = kinds.reference(inputs["x"], inputs["at"], inputs["row0"] if bias else None,
                            *list(inputs.values())[2 + bias :], **kinds.coerce(attributes))  # fmt: skip
    np.testing.assert_allclose(got["facts"], exact[2], rtol=1e-7)
    assert set(got) == set(wanted)
    for name, result in wanted.items():
        assert got[name].dtype == result.numpy().dtype
        np.testing.assert_array_equal(got[name], result, err_msg=name)


NAMES = {"f": 1.0, "body": 2.0, "shape": 3.0, "name": 4.0, "capacity": 5.0, "domain": 6.0}


def test_attributes_may_be_called_as_tensorflow_calls_its_own(tmp_path, monkeypatch):
    """tf2onnx takes attributes of these names for functions, shapes, or nothing."""
    monkeypatch.setenv("OPFORGE_JIT", "off")
    total = "x * (f + 10 * body + 100 * shape + 1000 * name + 10000 * capacity + 100000 * domain)"
    declared = ", ".join(f"{name}: float = 0.0" for name in NAMES)
    (tmp_path / "op.py").write_text(
        f"import opforge as of\n\n\n@of.formula('test.tf::Named')\ndef named(x, *, {declared}):\n    return {total}\n"
    )
    (named,) = of.load(tmp_path / "op.py")
    spec = [tf.TensorSpec([None], tf.float32)]
    model = of.tensorflow.export(lambda v: named(v, **NAMES), tmp_path / "m.onnx", input_signature=spec)
    assert {a.name: a.f for a in model.graph.node[0].attribute} == NAMES
    agrees(model, tmp_path / "m.onnx", np.ones(2, np.float32), np.full(2, 654321.0))
    registry.unregister(named)


def test_bfloat16_is_refused_since_tf2onnx_would_write_float16():
    spec = [tf.TensorSpec([4], tf.bfloat16)]
    with pytest.raises(ExportError, match=r"(?s)tf2onnx has no bfloat16.*mixed_float16"):
        of.tensorflow.export(lambda v: custom_gelu(v), input_signature=spec)
    layer = of.tensorflow.Layer(custom_gelu, dtype="mixed_bfloat16")
    with pytest.raises(ExportError, match=r"tf2onnx has no bfloat16"):
        of.tensorflow.export(keras.Sequential([keras.Input((3,)), layer]))


def test_mixed_float16_exports(tmp_path):
    net = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, dtype="mixed_float16"),
            of.tensorflow.Layer(mod_sigmoid, threshold=np.full(8, 0.25, np.float32), dtype="mixed_float16"),
            keras.layers.Dense(2, dtype="float32"),
        ]
    )
    model = of.tensorflow.export(net, tmp_path / "net.onnx")
    of.compile(model, tmp_path / "net.bin")
    (got,) = of.Session(tmp_path / "net.bin").run({model.graph.input[0].name: values(3, 6)}).values()
    np.testing.assert_allclose(got, net(values(3, 6)), atol=2e-3)


def test_weights_beyond_one_message_go_to_a_file_beside_the_model(tmp_path, monkeypatch):
    """With the limit lowered: the weights never pass through the converter or a message."""
    from opforge.onnx import _tensorflow_large

    table = tf.constant(values(300, 128))
    entry = keras.Input((6,), name="features")
    hidden = custom_gelu(keras.layers.Dense(300)(entry))
    net = keras.Model(entry, keras.layers.Dense(2)(keras.ops.matmul(hidden, table)))
    monkeypatch.setattr(_tensorflow_large, "LARGE", 1000)
    monkeypatch.setattr(_tensorflow_large, "_KEPT", 1000)
    with pytest.raises(ArgumentError, match=r"weights do not fit into a model without files[\s\S]*path of a file"):
        of.tensorflow.export(net)
    for _ in range(2):
        model = of.tensorflow.export(net, tmp_path / "large.onnx")
    assert [i.name for i in model.graph.input] == ["features"]
    assert [n.op_type for n in custom(model)] == ["CustomGELU"]
    beside = [p for p in tmp_path.iterdir() if p.suffix == ".data"]
    assert len(beside) == 1, "the data of the first export is gone"
    external = [t for t in model.graph.initializer if t.external_data]
    assert sorted(tuple(t.dims) for t in external) == [(6, 300), (128, 2), (300,), (300, 128)]
    assert len((tmp_path / "large.onnx").read_bytes()) < 20_000
    agrees(model, tmp_path / "large.onnx", values(3, 6), net(values(3, 6)))
    assert not list(tmp_path.glob("*.part"))
    monkeypatch.setattr(type(beside[0]), "open", lambda *a, **k: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        of.tensorflow.export(net, tmp_path / "large.onnx")


class Gated(keras.Model):
    """A subclass with two inputs: Keras does not know them before it is called."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(5)
        self.gate = of.tensorflow.Layer(mod_sigmoid)

    def call(self, x, threshold):
        return self.gate([self.dense(x), threshold])


class One(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(5)

    def call(self, x):
        return custom_gelu(self.dense(x))


def test_subclasses_modules_and_concrete_functions(tmp_path):
    x = values(3, 4)
    one = One()
    with pytest.raises(ArgumentError, match="what the inputs are is not known"):
        of.tensorflow.export(one)
    wanted = one(x)
    agrees(of.tensorflow.export(one, tmp_path / "o.onnx"), tmp_path / "o.onnx", x, wanted)
    agrees(of.tensorflow.export(one, tmp_path / "p.onnx", input_signature=[x]), tmp_path / "p.onnx", x, wanted)

    gated, threshold = Gated(), values(3, 1)
    specs = [tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([None, 1], name="threshold")]
    model = of.tensorflow.export(gated, tmp_path / "g.onnx", input_signature=specs)
    of.compile(model, tmp_path / "g.bin")
    (got,) = of.Session(tmp_path / "g.bin").run({"x": x, "threshold": threshold}).values()
    np.testing.assert_allclose(got, gated(x, threshold), atol=1e-5)

    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), of.tensorflow.Layer(custom_gelu)])
    concrete = tf.function(net).get_concrete_function(tf.TensorSpec([None, 4], name="features"))
    model = of.tensorflow.export(concrete, tmp_path / "c.onnx")
    assert [i.name for i in model.graph.input] == ["features"]
    agrees(model, tmp_path / "c.onnx", x, net(x))

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4])])
        def __call__(self, v):
            return clip_sigmoid(v, lo=0.25)

    agrees(of.tensorflow.export(Module(), tmp_path / "m.onnx"), tmp_path / "m.onnx", x, Module()(x))
    of.tensorflow.save(Module(), tmp_path / "saved")
    agrees(of.tensorflow.export(tmp_path / "saved", tmp_path / "s.onnx"), tmp_path / "s.onnx", x, Module()(x))


NET = """
import keras
import tensorflow as tf
import opforge as of
from opforge.ops import custom_gelu

def make():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), of.tensorflow.Layer(custom_gelu)])

def functional():
    x = keras.Input((4,), name="features")
    return keras.Model(x, custom_gelu(keras.layers.Dense(3)(x)))

class Sub(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return custom_gelu(self.dense(x))

def subclass():
    return Sub(), [tf.TensorSpec([None, 4], name="features")]

def concrete():
    return tf.function(make()).get_concrete_function(tf.TensorSpec([None, 4]))

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
    for target in (*(f"net.py:{f}" for f in ("make", "functional", "subclass", "concrete", "saved")), "saved"):
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


def test_a_domain_is_imported_in_one_version(monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "off")

    @of.formula("test.tensorflow.versions::Ramp")
    def ramp(x):
        return of.relu(x)

    @of.formula("test.tensorflow.versions::Ramp", since=2)
    def leaky(x):
        return of.where(x < 0, 0.25 * x, x)

    of.tensorflow.register(leaky)
    spec = [tf.TensorSpec([None, 2], tf.float32)]
    for operator, version in ((ramp, 1), (leaky, 2)):
        model = of.tensorflow.export(tf.function(operator, input_signature=spec, autograph=False))
        assert {item.domain: item.version for item in model.opset_import}["test.tensorflow.versions"] == version
    both = tf.function(lambda x: ramp(x) + leaky(x), input_signature=spec, autograph=False)
    words = r"(?s)imports a domain in one version.*Ramp in version 1.*because of test.tensorflow.versions::Ramp:2"
    with pytest.raises(ExportError, match=words):
        of.tensorflow.export(both)
