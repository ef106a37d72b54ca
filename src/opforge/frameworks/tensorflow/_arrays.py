"""NumPy arrays in and out of TensorFlow, and one backward pass: what checks need of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from opforge.schema import Operator

__all__ = ["MODES", "compute", "gradients", "second_gradients", "watch"]

Array = np.ndarray[Any, Any]
MODES = ("eager", "traced")
"""How an operator can be called: as it is, or in a ``tf.function``; XLA computes formulas by its own operations.

Nothing here needs AutoGraph, which would hand on an error of ours as one of its own.
"""


def _call(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    result = operator(*tensors, **attributes)
    return list(result) if isinstance(result, tuple | list) else [result]


def _tensors(arrays: Sequence[Array | None]) -> list[Any]:
    return [None if a is None else tf.constant(a) for a in arrays]


def compute(
    operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any], mode: str = "eager"
) -> list[Array]:
    """Run the operator in one of ``MODES``."""
    tensors = _tensors(arrays)
    if mode == "eager":
        return [t.numpy() for t in _call(operator, tensors, attributes)]

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def traced(*present: Any) -> list[Any]:  # noqa: ANN401
        rest = iter(present)
        return _call(operator, [None if t is None else next(rest) for t in tensors], attributes)

    present = [t for t in tensors if t is not None]
    return [t.numpy() for t in traced.get_concrete_function(*present)(*present)]


def watch(operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> Callable[[], None]:
    """Return a call that records the operator for a backward pass which never comes."""
    tensors = _tensors(arrays)

    def forward() -> None:
        with tf.GradientTape() as tape:
            tape.watch([t for t in tensors if t is not None and t.dtype.is_floating])
            operator(*tensors, **attributes)

    return forward


def gradients(
    operator: Operator,
    arrays: Sequence[Array | None],
    grads: Sequence[Array],
    attributes: Mapping[str, Any],
    mode: str = "eager",
) -> list[Array | None]:
    """Run the operator and its backward pass; one gradient per input, None for integers and absent ones."""
    tensors = _tensors(arrays)
    wanted = [k for k, t in enumerate(tensors) if t is not None and t.dtype.is_floating]
    present = [t for t in tensors if t is not None]

    def backward(*given: Any) -> list[Any]:  # noqa: ANN401
        rest = iter(given)
        every = [None if t is None else next(rest) for t in tensors]
        leaves = [every[k] for k in wanted]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(leaves)
            outputs = _call(operator, every, attributes)
        given_grads = [tf.constant(g, o.dtype) for g, o in zip(grads, outputs, strict=True)]
        return list(tape.gradient(outputs, leaves, given_grads))

    # A function for each call: asked for by name, or TensorFlow warns of functions that are traced again.
    function = backward if mode == "eager" else tf.function(backward, autograph=False).get_concrete_function(*present)
    found = function(*present)
    values: list[Array | None] = [None] * len(tensors)
    for k, gradient in zip(wanted, found, strict=True):
        values[k] = None if gradient is None else tf.convert_to_tensor(gradient).numpy()
    return values


def second_gradients(
    operator: Operator,
    arrays: Sequence[Array | None],
    grads: Sequence[Array],
    weights: Sequence[Array | None],
    attributes: Mapping[str, Any],
) -> list[Array | None]:
    """Differentiate the sum of ``weights`` times the first gradients; None where nothing was recorded for an input."""
    tensors = _tensors(arrays)
    wanted = [k for k, t in enumerate(tensors) if t is not None and t.dtype.is_floating]
    leaves = [tensors[k] for k in wanted]
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        outer.watch(leaves)
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(leaves)
            outputs = _call(operator, tensors, attributes)
        given = [tf.constant(g, o.dtype) for g, o in zip(grads, outputs, strict=True)]
        first = inner.gradient(outputs, leaves, given)
    pairs = [(g, weights[k]) for k, g in zip(wanted, first, strict=True) if g is not None and weights[k] is not None]
    second = outer.gradient([g for g, _ in pairs], leaves, [tf.constant(w, g.dtype) for g, w in pairs])
    values: list[Array | None] = [None] * len(tensors)
    for k, gradient in zip(wanted, second, strict=True):
        values[k] = None if gradient is None else tf.convert_to_tensor(gradient).numpy()
    return values
