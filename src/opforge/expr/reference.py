"""Values of expressions: float64 on NumPy arrays, any precision on scalars through mpmath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opforge.expr import semantics
from opforge.expr.nodes import Node, ValueType, postorder

__all__ = ["evaluate", "evaluate_exactly", "finite_of", "sum_to_shape"]

Array = Any  # np.ndarray of any dtype


def evaluate(
    outputs: Sequence[tuple[Node, int | None]], inputs: Sequence[Array], attributes: Sequence[float] = ()
) -> list[Array]:
    """Values of expressions in float64.

    Args:
        outputs: each an expression and the input whose shape it is summed to, or None.
        inputs: arrays that broadcast together.
        attributes: scalars.

    Returns:
        One array per output, of its whole broadcast shape or of the input's shape.
    """
    arrays = [np.asarray(a) for a in inputs]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    values: dict[int, Array] = {}
    for node in postorder(node for node, _ in outputs):
        if node.op == "input":
            values[id(node)] = _as(arrays[node.index], node.type)
        elif node.op == "attribute":
            values[id(node)] = _as(np.float64(attributes[node.index]), node.type)
        elif node.op == "constant":
            values[id(node)] = _as(np.float64(node.value), node.type)
        else:
            values[id(node)] = semantics.evaluate(node.op, [values[id(a)] for a in node.args], node.type)
    results = []
    for node, sum_to in outputs:
        whole = np.broadcast_to(values[id(node)], shape)
        results.append(whole.copy() if sum_to is None else sum_to_shape(whole, arrays[sum_to].shape))
    return results


def sum_to_shape(array: Array, shape: tuple[int, ...]) -> Array:
    """The array summed over the dimensions along which a tensor of the shape was broadcast."""
    lead = array.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(lead + k for k, n in enumerate(shape) if n == 1 and array.shape[lead + k] != 1)
    return array.sum(axis=axes).reshape(shape)


def finite_of(written: Array, stable: Array) -> Array:
    """The first array, with elements of the second where only those are finite."""
    if written.dtype.kind != "f":
        return written
    return np.where(~np.isfinite(written) & np.isfinite(stable), stable, written)


def _as(value: Array, type_: ValueType) -> Array:
    return semantics.cast(value, type_)


def evaluate_exactly(node: Node, inputs: Sequence[Any], attributes: Sequence[Any] = (), digits: int = 50) -> Any:  # noqa: ANN401
    """The value of an expression at scalars, computed by mpmath with so many digits; needs mpmath.

    For finite arguments: mpmath has its own ideas of infinities and NaN.
    """
    from opforge.expr import exact

    return exact.evaluate(node, inputs, attributes, digits)
