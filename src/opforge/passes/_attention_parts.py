"""What stands before an attention: triangles of -inf as exporters write them, heads of keys and values repeated."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._match import producer
from opforge.passes.infer_shapes import dims_of

__all__ = ["is_triangle", "unrepeated"]

HIDDEN = -1e30
"""Scores this low have no share in a softmax where any other is seen; each row of a triangle sees its first key."""


def _filled(value: ir.Value | None) -> float | None:
    """Return the number that fills a tensor, as a constant or made in the graph."""
    node = producer(value, "Expand", alone=False)
    if node is not None:
        return _edit.scalar(node.inputs[0])
    node = producer(value, "ConstantOfShape", alone=False)
    if node is not None:
        data = _edit.attribute(node, "value")
        return 0.0 if data is None else float(np.asarray(data.numpy()).reshape(-1)[0])
    data = _edit.array(value)
    return float(data.reshape(-1)[0]) if data is not None and data.size and bool((data == data.flat[0]).all()) else None


def _trilu(value: ir.Value | None, *, upper: int, diagonal: int) -> float | None:
    """Return the number in the half that a Trilu keeps of a filled tensor."""
    node = producer(value, "Trilu", alone=False)
    if node is None or _edit.attribute(node, "upper", 1) != upper:
        return None
    k = 0 if len(node.inputs) < 2 or node.inputs[1] is None else _edit.scalar(node.inputs[1])
    return _filled(node.inputs[0]) if k == diagonal else None


def _lower_half(value: ir.Value | None) -> bool | None:
    """Tell whether a condition is true in the lower triangle (True) or everywhere else (False); None = neither."""
    if producer(value, "Trilu", alone=False) is not None:
        return True if _trilu(value, upper=0, diagonal=0) else None
    node = producer(value, "Cast", alone=False)
    if node is not None:
        return _lower_half(node.inputs[0])
    node = producer(value, "Not", alone=False)
    if node is not None:
        inner = _lower_half(node.inputs[0])
        return None if inner is None else not inner
    node = producer(value, "Equal", alone=False)
    if node is not None and _edit.scalar(node.inputs[1]) == 0 and _trilu(node.inputs[0], upper=0, diagonal=0):
        return False
    return None


def is_triangle(mask: ir.Value | None) -> bool:
    """Tell whether an additive mask of two dimensions hides the keys behind each query and nothing else."""
    dims = dims_of(mask)
    if mask is None or dims is None or len(dims) != 2:
        return False
    data = _edit.array(mask)
    if data is not None:
        lower = np.tri(*data.shape, dtype=np.bool_)
        return bool(np.all(np.where(lower, data == 0, data <= HIDDEN)))
    high = _trilu(mask, upper=1, diagonal=1)
    if high is not None:
        return high <= HIDDEN
    node = producer(mask, "Where", alone=False)
    if node is None:
        return False
    lower_half = _lower_half(node.inputs[0])
    numbers = [_edit.scalar(v) for v in node.inputs[1:]]
    if lower_half is None or None in numbers:
        return False
    seen, hidden = numbers if lower_half else numbers[::-1]
    return seen == 0 and hidden is not None and hidden <= HIDDEN


def unrepeated(value: ir.Value) -> tuple[ir.Value, int] | None:
    """Return [batch, heads, length, depth] and n where ``value`` is that with each head standing there n times."""
    join = producer(value, "Reshape", alone=False)
    spread = producer(join.inputs[0], "Expand", alone=False) if join is not None else None
    split = producer(spread.inputs[0], "Unsqueeze", "Reshape", alone=False) if spread is not None else None
    if join is None or spread is None or split is None or split.inputs[0] is None:
        return None
    source, one, many, out = (dims_of(v) for v in (split.inputs[0], split.outputs[0], spread.outputs[0], value))
    if source is None or one is None or many is None or out is None or not len(source) == 4 == len(out):
        return None
    fits = len(one) == 5 == len(many) and one[:2] == source[:2] == many[:2] and one[3:] == source[2:] == many[3:]
    count = many[2].constant if fits else None
    if count is None or one[2] != 1 or out != [source[0], source[1] * count, source[2], source[3]]:
        return None
    return split.inputs[0], count
