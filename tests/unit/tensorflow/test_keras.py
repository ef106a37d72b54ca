"""Layers in Keras models: training, mixed precision, saving; functional models; tf.data."""

import numpy as np
import pytest

import opforge as of
from opforge.errors import ArgumentError
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid, sparse_matmul

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


@pytest.fixture(autouse=True)
def _seed():
    keras.utils.set_random_seed(0)


def data(rows=64):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 4)).astype(np.float32)
    return x, (x.sum(1, keepdims=True) > 0).astype(np.float32)


def test_fit_trains_the_kept_input_and_saves(tmp_path):
    gate = of.tensorflow.Layer(mod_sigmoid, threshold=0.5)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8), of.tensorflow.Layer(custom_gelu), keras.layers.Dense(1), gate]
    )
    model.compile("adam", "binary_crossentropy")
    x, y = data()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    history = model.fit(dataset, epochs=5, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert float(gate.weights[0]) != 0.5
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
    assert again.layers[-1].operator is mod_sigmoid


def test_functional_models_take_operators_directly():
    inputs = keras.Input((4,))
    hidden = clip_sigmoid(keras.layers.Dense(3)(inputs), lo=0.2)
    model = keras.Model(inputs, custom_gelu(hidden))
    x, _ = data(5)
    expected = custom_gelu(clip_sigmoid(model.layers[1](x), lo=0.2))
    np.testing.assert_array_equal(model(x), expected)
    again = keras.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(x), expected)
    two = keras.Model([inputs, threshold := keras.Input((1,))], mod_sigmoid(inputs, threshold))
    np.testing.assert_array_equal(two([x, x[:, :1]]), mod_sigmoid(tf.constant(x), tf.constant(x[:, :1])))
    with pytest.raises(ArgumentError, match="Keras tensors do not go along with other values"):
        mod_sigmoid(inputs, tf.constant(0.5))


def test_mixed_precision_computes_in_the_lower_type():
    layer = of.tensorflow.Layer(mod_sigmoid, threshold=0.5, dtype="mixed_bfloat16")
    result = layer(np.ones((2, 3), np.float32))
    assert result.dtype == tf.bfloat16
    assert layer.weights[0].dtype == "float32"


def test_arrays_that_a_layer_keeps_are_saved_with_their_types(tmp_path):
    csr = {"indices": np.array([0, 2, 1], np.int64), "indptr": np.array([0, 1, 2, 3], np.int64)}
    values = np.array([1.0, 2.0, 3.0], np.float64)
    layer = of.tensorflow.Layer(sparse_matmul, values=values, **csr, dtype="float64")
    model = keras.Sequential([keras.Input(batch_shape=(3, 2), dtype="float64"), layer])
    dense = np.arange(6.0).reshape(3, 2)
    wanted = dense[[0, 2, 1]] * [[1], [2], [3]]
    np.testing.assert_array_equal(model(dense), wanted)
    assert [w.name for w in layer.trainable_weights] == ["values"]
    model.save(tmp_path / "sparse.keras")
    again = keras.models.load_model(tmp_path / "sparse.keras")
    assert [w.dtype for w in again.layers[0].weights] == ["float64", "int64", "int64"]
    np.testing.assert_array_equal(again(dense), wanted)


def test_frozen_and_unknown_keywords():
    layer = of.tensorflow.Layer(mod_sigmoid, threshold=0.5, trainable=False)
    layer(np.ones((2, 3), np.float32))
    assert not layer.trainable_weights
    with pytest.raises(
        ArgumentError, match=r"(?s)Layer\(com.example::ModSigmoid\): unknown keyword.*threshold.*got: level"
    ):
        of.tensorflow.Layer(mod_sigmoid, level=1)
    with pytest.raises(ArgumentError, match=r"(?s)not declared in this process.*com.example::None:1"):
        of.tensorflow.Layer("com.example::None:1")
    with pytest.raises(
        ArgumentError, match=r"opforge.tensorflow.Layer: this is no operator\n.*\n  got: <ufunc 'tanh'>"
    ):
        of.tensorflow.Layer(np.tanh)


def test_tf_data_maps_in_parallel():
    rows = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(rows).map(custom_gelu, num_parallel_calls=4).batch(64)
    np.testing.assert_array_equal(next(iter(dataset)), custom_gelu(tf.constant(rows)))
