"""What the frameworks share: scikit-learn's digits, a small network's starting weights, and the order of batches.

The network is ``softmax(operator(x @ inner, *learned) @ outer + bias)``: 64 pixels, 32 hidden units, 10 digits. The
operator's parameters have one value per hidden unit and are trained with the weights.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits

from examples.lessons.operators import clip_sigmoid, mod_sigmoid
from opforge.schema import Operator

__all__ = ["BATCH", "LESSONS", "MOMENTUM", "RATE", "Digits", "Lesson", "Result", "load"]

HIDDEN = 32
BATCH = 64
RATE = 0.125  # with the momentum exact in every type: Keras keeps both as float32
MOMENTUM = 0.875


@dataclass(frozen=True)
class Lesson:
    """An operator, and what its learned parameters begin with."""

    operator: Operator
    learned: dict[str, float]

    def start(self, dtype: str) -> dict[str, np.ndarray]:
        """Starting weights by name, the same in every framework."""
        rng = np.random.default_rng(0)
        weights = {
            "inner": rng.standard_normal((64, HIDDEN)) / 4,
            "outer": rng.standard_normal((HIDDEN, 10)) / np.sqrt(HIDDEN),
            "bias": np.zeros(10),
            **{name: np.full(HIDDEN, value) for name, value in self.learned.items()},
        }
        return {name: value.astype(dtype) for name, value in weights.items()}


LESSONS = {
    "ClipSigmoid": Lesson(clip_sigmoid, {"lo": 0.1, "hi": 0.9}),
    "ModSigmoid": Lesson(mod_sigmoid, {"threshold": 0.5}),
}


@dataclass(frozen=True)
class Digits:
    """Images of 8 x 8 pixels as rows from 0 to 1, and which digit each is."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray

    def epochs(self, count: int) -> list[list[np.ndarray]]:
        """Indices of batches, in an order that does not depend on the framework."""
        rng = np.random.default_rng(1)
        whole = len(self.y) // BATCH * BATCH
        return [list(rng.permutation(len(self.y))[:whole].reshape(-1, BATCH)) for _ in range(count)]


@dataclass(frozen=True)
class Result:
    """What training gave."""

    losses: list[float]
    """Mean loss of each epoch."""
    accuracy: float
    """On images that were not trained on."""
    weights: dict[str, np.ndarray]


def load(dtype: str) -> Digits:
    """The digits, three quarters of them for training."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(2).permutation(len(y))
    x, y = (x[order] / 16).astype(dtype), y[order].astype("int64")
    cut = len(y) * 3 // 4
    return Digits(x[:cut], y[:cut], x[cut:], y[cut:])
