"""NumPy arrays in and out of TensorFlow, and one backward pass: what checks need of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from opforge.schema import Operator

__all__ = ["compute", "gradients"]

Array = np.ndarray[Any, Any]


def compute(operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[Array]:
    """Run the operator eagerly."""
    result = operator(*(None if a is None else tf.constant(a) for a in arrays), **attributes)
    return [t.numpy() for t in (result if isinstance(result, tuple | list) else [result])]


def gradients(
    operator: Operator, arrays: Sequence[Array | None], grads: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Array | None]:
    """Run the operator and its backward pass; one gradient per input, None for integers and absent ones."""
    tensors = [None if a is None else tf.constant(a) for a in arrays]
    wanted = [t for t in tensors if t is not None and t.dtype.is_floating]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(wanted)
        result = operator(*tensors, **attributes)
        outputs = list(result) if isinstance(result, tuple | list) else [result]
    found = tape.gradient(outputs, wanted, [tf.constant(g, o.dtype) for g, o in zip(grads, outputs, strict=True)])
    by_tensor = {id(t): g for t, g in zip(wanted, found, strict=True)}
    values = [None if t is None else by_tensor.get(id(t)) for t in tensors]
    return [None if v is None else tf.convert_to_tensor(v).numpy() for v in values]
