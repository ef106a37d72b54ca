"""The lessons on real data: three frameworks learn the same, Keras and Flax train with operators in their models."""

import struct

import numpy as np
import pytest

for module in ("torch", "tensorflow", "jax", "optax", "matplotlib", "sklearn"):
    pytest.importorskip(module)
lessons = pytest.importorskip("examples.lessons.__main__")
LESSONS = lessons.LESSONS

pytestmark = pytest.mark.filterwarnings("ignore")


def test_three_frameworks_learn_the_same_and_the_curves_are_drawn(tmp_path):
    """In float64 what is left between them is the order of additions in matrix products."""
    results = lessons.train(8, "float32", ["ModSigmoid"]) | lessons.train(8, "float64", ["ClipSigmoid"])
    for title, by_name in results.items():
        assert set(by_name) == {"PyTorch", "TensorFlow", "JAX"}
        for name, result in by_name.items():
            assert result.accuracy > 0.93, (title, name)
            assert result.losses[-1] < 0.2 * result.losses[0], (title, name)
            for key, start in LESSONS[title].learned.items():
                assert np.abs(result.weights[key] - start).max() > 0.01, "it is learned"
    assert lessons.difference("ModSigmoid", results["ModSigmoid"]) < 1e-4
    assert lessons.difference("ClipSigmoid", results["ClipSigmoid"]) < 1e-12
    lessons.draw(results, tmp_path / "curves.png")
    data = (tmp_path / "curves.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > 800 and height > 300


def test_keras_fits_in_mixed_precision_and_saves(tmp_path):
    from examples.lessons import keras_fit

    figures = keras_fit.main(tmp_path, epochs=8)
    assert figures["last"] < 0.3 * figures["first"]
    assert figures["accuracy"] > 0.93
    assert figures["moved"] > 0.05
    assert figures["same"] == 0


def test_flax_and_optax_train_and_export():
    pytest.importorskip("flax")
    from examples.lessons import flax_optax

    figures = flax_optax.main(epochs=6)
    assert figures["last"] < 0.3 * figures["first"]
    assert figures["accuracy"] > 0.93
    assert figures["moved"] > 0.05
    assert figures["error"] < 1e-5
