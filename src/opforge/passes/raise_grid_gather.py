"""GatherND by a grid of all indices is the tensor itself with axes of length 1 between its own.

Exporters write ``mask[batch_index, key_index]`` with index tensors that count 0, 1, 2, ... along one axis each.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "raise_grid_gather"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()


def _counts_along(value: ir.Value | None, rank: int) -> int | None:
    """Return the axis along which ``value`` holds 0, 1, 2, ... while it is constant along the others."""
    moved = _edit.is_op(value.producer(), "Unsqueeze") if value is not None else False
    node = value.producer() if value is not None and moved else None
    axes = _edit.array(node.inputs[1]) if node is not None else None
    dims = dims_of(value)
    if node is None or axes is None or dims is None or len(dims) != rank + 1:
        return None
    if [int(a) % (rank + 1) for a in axes.reshape(-1)] != [rank]:
        return None  # the last axis is the one that Concat joins
    inner = node.inputs[0]
    spread = inner.producer() if inner is not None else None
    if spread is not None and _edit.is_op(spread, "Expand"):
        inner = spread.inputs[0]
    shape = dims_of(inner)
    own = [axis for axis, d in enumerate(shape or []) if d != 1]
    if inner is None or shape is None or len(own) != 1 or len(shape) > rank:
        return None
    counter = inner.producer()
    while counter is not None and _edit.is_op(counter, "Unsqueeze") and counter.inputs[0] is not None:
        counter = counter.inputs[0].producer()
    if counter is None or not _edit.is_op(counter, "Range"):
        return None
    counts = _edit.scalar(counter.inputs[0]) == 0 and _edit.scalar(counter.inputs[2]) == 1
    axis = own[0] + rank - len(shape)
    return axis if counts and dims[axis] == shape[own[0]] else None


def _match(node: ir.Node) -> list[int] | None:
    """Return the axes of the result that are the data's own, in order."""
    data, indices = dims_of(node.inputs[0]), dims_of(node.inputs[1])
    stack = node.inputs[1].producer() if node.inputs[1] is not None else None
    if data is None or indices is None or stack is None or not _edit.is_op(stack, "Concat"):
        return None
    rank = len(indices) - 1
    if len(stack.inputs) != len(data) or _edit.attribute(stack, "axis") not in (-1, rank) or indices[-1] != len(data):
        return None
    found = [_counts_along(v, rank) for v in stack.inputs]
    axes = [a for a in found if a is not None]
    grid = len(axes) == len(found) and axes == sorted(set(axes))
    whole = grid and all(indices[a] == d for a, d in zip(axes, data, strict=True))
    rest = all(indices[k] == 1 for k in range(rank) if k not in axes)
    return axes if whole and rest else None


def call(model: ir.Model) -> int:
    """Replace by Unsqueeze."""
    count = 0
    for node in _edit.nodes(model):
        if not _edit.is_op(node, "GatherND") or _edit.attribute(node, "batch_dims", 0):
            continue
        axes = _match(node)
        dims = dims_of(node.inputs[1])
        if axes is None or dims is None:
            continue
        new = [k for k in range(len(dims) - 1) if k not in axes]
        constant = _edit.add_constant(model.graph, np.array(new, np.int64), f"{node.outputs[0].name}__axes")
        _edit.replace_node(node, "Unsqueeze", [node.inputs[0], constant])
        count += 1
    return count
