"""The lessons in JAX: a function of a dictionary of weights, ``value_and_grad`` under ``jit``, and optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from examples.lessons.digits import MOMENTUM, RATE, Digits, Lesson, Result

__all__ = ["train"]


def train(lesson: Lesson, digits: Digits, start: dict[str, np.ndarray], epochs: int) -> Result:
    optimiser = optax.sgd(RATE, momentum=MOMENTUM)

    def logits(weights, x):
        hidden = lesson.operator(x @ weights["inner"], *(weights[name] for name in lesson.learned))
        return hidden @ weights["outer"] + weights["bias"]

    def loss_of(weights, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(logits(weights, x), y).mean()

    @jax.jit
    def step(weights, state, x, y):
        loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(weights, updates), state, loss

    with jax.enable_x64(start["inner"].dtype == np.float64):
        weights = {name: jnp.asarray(value) for name, value in start.items()}
        state = optimiser.init(weights)
        losses = []
        for batches in digits.epochs(epochs):
            total = 0.0
            for batch in batches:
                weights, state, loss = step(weights, state, digits.x[batch], digits.y[batch])
                total += float(loss)
            losses.append(total / len(batches))
        found = np.argmax(logits(weights, jnp.asarray(digits.test_x)), axis=1)
        return Result(
            losses,
            float((found == digits.test_y).mean()),
            {name: np.asarray(value) for name, value in weights.items()},
        )
