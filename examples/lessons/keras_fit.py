"""A Keras model with an operator as a layer, trained by ``model.fit`` from tf.data in mixed precision, and saved.

Run: python -m examples.lessons.keras_fit
"""

import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import opforge as of
from examples.lessons.digits import BATCH, HIDDEN, load
from examples.lessons.operators import mod_sigmoid


def main(folder: Path, epochs: int = 12) -> dict[str, float]:
    keras.utils.set_random_seed(0)
    digits = load("float32")
    images = tf.data.Dataset.from_tensor_slices((digits.x, digits.y))
    images = images.shuffle(len(digits.y), seed=0).batch(BATCH).prefetch(tf.data.AUTOTUNE)

    # Layers compute in bfloat16 and keep float32 weights; the last one, whose numbers the loss reads, does not.
    gate = of.tensorflow.Layer(mod_sigmoid, threshold=np.full(HIDDEN, 0.5, np.float32), dtype="mixed_bfloat16")
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(HIDDEN, use_bias=False, dtype="mixed_bfloat16"),
            gate,
            keras.layers.Dense(10, dtype="float32"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    losses = model.fit(images, epochs=epochs, verbose=0).history["loss"]
    accuracy = model.evaluate(digits.test_x, digits.test_y, verbose=0, return_dict=True)["accuracy"]
    moved = float(np.abs(gate.weights[0].numpy() - 0.5).max())
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {100 * accuracy:.1f} % in mixed precision")
    print(f"thresholds ({gate.weights[0].dtype}, computed in {gate.compute_dtype}) moved by up to {moved:.3f}")

    model.save(folder / "digits.keras")
    again = keras.models.load_model(folder / "digits.keras")
    wanted = model.predict(digits.test_x, verbose=0)
    same = float(np.abs(again.predict(digits.test_x, verbose=0) - wanted).max())
    print(f"saved and loaded: predictions differ by {same:.1e}")
    return {"first": losses[0], "last": losses[-1], "accuracy": accuracy, "moved": moved, "same": same}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = main(Path(scratch))
    sys.exit(0 if figures["accuracy"] > 0.93 and figures["same"] == 0 else 1)
