"""Layer normalisation written out (mean, difference, mean of squares, root, quotient, affine) becomes one node."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._match import power, producer, with_constant
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "raise_layer_norm"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()


def _mean_of_last(value: ir.Value | None, *, alone: bool) -> ir.Value | None:
    """Return x where ``value`` is the mean of x over its last axis, kept."""
    node = producer(value, "ReduceMean", alone=alone)
    if node is None or not _edit.attribute(node, "keepdims", 1):
        return None
    axes = _edit.array(node.inputs[1]) if len(node.inputs) > 1 else None
    dims = dims_of(node.inputs[0])
    if axes is None or dims is None or [int(a) % len(dims) for a in axes.reshape(-1)] != [len(dims) - 1]:
        return None
    return node.inputs[0]


def _match(quotient: ir.Node) -> tuple[ir.Value, float] | None:
    """Read ``d / sqrt(mean(d^2) + eps)`` with ``d = x - mean(x)``."""
    d, root = quotient.inputs[0], producer(quotient.inputs[1], "Sqrt")
    difference = d.producer() if d is not None else None
    if d is None or root is None or not _edit.is_op(difference, "Sub") or difference is None:
        return None
    shifted = with_constant(producer(root.inputs[0], "Add"), "Add")
    if shifted is None:
        return None
    variance, epsilon = shifted
    square = _mean_of_last(variance, alone=True)
    if square is None:
        return None
    squared = square.producer()
    other = squared.inputs[0] if squared is not None else None
    # Some exporters compute the difference twice.
    if not power(square, d, 2) and not (
        other is not None and _same_difference(other, difference) and power(square, other, 2)
    ):
        return None
    x = difference.inputs[0]
    return (x, epsilon) if x is not None and _mean_of_last(difference.inputs[1], alone=False) is x else None


def _same_difference(value: ir.Value, difference: ir.Node) -> bool:
    node = value.producer()
    if not _edit.is_op(node, "Sub") or node is None or node.inputs[0] is not difference.inputs[0]:
        return False
    return _mean_of_last(node.inputs[1], alone=False) is node.inputs[0]


def _affine(node: ir.Node, name: str, size: int) -> tuple[ir.Node, ir.Value] | None:
    """Return the one reader of ``node`` when it applies a vector of ``size`` elements, and that vector."""
    user = _edit.only_consumer(node.outputs[0])
    if user is None or not _edit.is_op(user, name):
        return None
    other = user.inputs[1] if user.inputs[0] is node.outputs[0] else user.inputs[0]
    data = _edit.array(other)
    return (user, other) if other is not None and data is not None and data.shape == (size,) else None


def call(model: ir.Model) -> int:
    """Replace; without a scale in the model a vector of ones is made."""
    count = 0
    for node in _edit.nodes(model):
        if node.graph is None or not _edit.is_op(node, "Div"):
            continue
        found, dims = _match(node), dims_of(node.outputs[0])
        size = dims[-1].constant if dims else None
        if found is None or size is None or node.outputs[0].dtype in (None, ir.DataType.DOUBLE):
            continue
        x, epsilon = found
        last, inputs, inner = node, [x], [node]
        scaled = _affine(node, "Mul", size)
        if scaled is not None:
            last = scaled[0]
            inputs.append(scaled[1])
            inner.append(last)
            shifted = _affine(last, "Add", size)
            if shifted is not None:
                last = shifted[0]
                inputs.append(shifted[1])
        else:
            ones = np.ones(size, node.outputs[0].dtype.numpy())
            inputs.append(_edit.add_constant(node.graph, ones, "layer_norm__ones"))
        _edit.replace_node(last, "LayerNormalization", inputs, {"axis": -1, "epsilon": epsilon}, also=inner)
        count += 1
    return count
