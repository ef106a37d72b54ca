"""The lessons in TensorFlow: a gradient tape inside ``tf.function``, and Keras's optimiser."""

import keras
import numpy as np
import tensorflow as tf

from examples.lessons.digits import MOMENTUM, RATE, Digits, Lesson, Result

__all__ = ["train"]


def train(lesson: Lesson, digits: Digits, start: dict[str, np.ndarray], epochs: int) -> Result:
    weights = {name: tf.Variable(value, name=name) for name, value in start.items()}
    variables = list(weights.values())
    optimiser = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
    optimiser.build(variables)

    def logits(x):
        hidden = lesson.operator(x @ weights["inner"], *(weights[name] for name in lesson.learned))
        return hidden @ weights["outer"] + weights["bias"]

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(x)))
        optimiser.apply(tape.gradient(loss, variables), variables)
        return loss

    losses = []
    for batches in digits.epochs(epochs):
        total = sum(float(step(digits.x[batch], digits.y[batch])) for batch in batches)
        losses.append(total / len(batches))
    found = np.argmax(logits(tf.constant(digits.test_x)), axis=1)
    return Result(
        losses, float((found == digits.test_y).mean()), {name: value.numpy() for name, value in weights.items()}
    )
