"""A Flax module with operators between its layers, trained by optax, and saved by ``jax.export`` for any batch.

Run: python -m examples.lessons.flax_optax
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax import export

import opforge as of
from examples.lessons.digits import HIDDEN, Digits, load
from examples.lessons.operators import mod_sigmoid
from opforge.ops import custom_gelu


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(64, HIDDEN, rngs=rngs)
        self.inner = nnx.Linear(HIDDEN, HIDDEN, use_bias=False, rngs=rngs)
        self.threshold = nnx.Param(jnp.full(HIDDEN, 0.5))
        self.last = nnx.Linear(HIDDEN, 10, rngs=rngs)

    def __call__(self, x):
        hidden = custom_gelu(self.first(x))
        return self.last(mod_sigmoid(self.inner(hidden), self.threshold[...]))


@nnx.jit
def step(model, optimiser, x, y):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, gradient = nnx.value_and_grad(loss_of)(model)
    optimiser.update(model, gradient)
    return loss


def train(digits: Digits, epochs: int) -> tuple[Net, list[float]]:
    model = Net(nnx.Rngs(0))
    optimiser = nnx.Optimizer(model, optax.adamw(0.01), wrt=nnx.Param)
    losses = []
    for batches in digits.epochs(epochs):
        losses.append(sum(float(step(model, optimiser, digits.x[b], digits.y[b])) for b in batches) / len(batches))
    return model, losses


def main(epochs: int = 12) -> dict[str, float]:
    digits = load("float32")
    model, losses = train(digits, epochs)
    logits = model(jnp.asarray(digits.test_x))
    accuracy = float((np.argmax(logits, axis=1) == digits.test_y).mean())
    moved = float(jnp.abs(model.threshold[...] - 0.5).max())
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {100 * accuracy:.1f} %, thresholds moved by {moved:.3f}")

    graph, state = nnx.split(model)
    function = jax.jit(lambda x: nnx.merge(graph, state)(x))
    images = jax.ShapeDtypeStruct(export.symbolic_shape("batch, 64"), jnp.float32)
    data = export.export(function, disabled_checks=of.jax.disabled_checks())(images).serialize()
    loaded = export.deserialize(data)
    error = float(jnp.abs(loaded.call(digits.test_x) - logits).max())
    print(f"exported for any batch ({len(data)} bytes): results differ by {error:.1e}")
    return {"first": losses[0], "last": losses[-1], "accuracy": accuracy, "moved": moved, "error": error}


if __name__ == "__main__":
    figures = main()
    sys.exit(0 if figures["accuracy"] > 0.93 and figures["error"] < 1e-5 else 1)
