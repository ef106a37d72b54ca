"""Multiplications and additions by constants per output channel go into the weights and bias of the node before them.

Computed in float64 and rounded once. Half-precision weights stay as they are: there each operator's rounding counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "fold_scale_shift"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()

Array = np.ndarray[Any, Any]


def _channel_axis(node: ir.Node) -> int | None:
    """Return the axis of the weights that counts output channels, None where it is not a plain axis."""
    if _edit.is_op(node, "Conv"):
        return 0
    if _edit.is_op(node, "ConvTranspose") and _edit.attribute(node, "group", 1) == 1:
        return 1
    return 1 if _edit.is_op(node, "MatMul") else None


def _per_channel(constant: Array, channels: int, rank: int, *, last: bool) -> Array | None:
    """See a constant as one number per output channel of a result of this rank, or None."""
    if constant.size == 1 and constant.ndim <= rank:
        return np.full(channels, constant.reshape(-1)[0], np.float64)
    axis = rank - 1 if last else 1
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if constant.ndim > rank or constant.size != channels or shape[axis] != channels:
        return None
    return constant.reshape(-1).astype(np.float64)


def _operands(user: ir.Node, y: ir.Value) -> tuple[Array, bool] | None:
    """Return the constant of a two-operand node and whether y is its first operand."""
    first = user.inputs[0] is y
    constant = _edit.array(user.inputs[1] if first else user.inputs[0])
    return None if constant is None else (constant, first)


def _absorb(node: ir.Node) -> bool:
    axis = _channel_axis(node)
    y = node.outputs[0]
    user = _edit.only_consumer(y)
    if axis is None or node.graph is None or user is None or not _edit.is_op(user, "Mul", "Div", "Add", "Sub"):
        return False
    weight, dims, found = _edit.array(node.inputs[1]), dims_of(y), _operands(user, y)
    if weight is None or weight.dtype not in (np.float32, np.float64) or dims is None or found is None:
        return False
    matmul = node.op_type == "MatMul"
    if matmul and weight.ndim != 2:
        return False
    constant, first = found
    scale = user.op_type in ("Mul", "Div")
    if (user.op_type == "Div" and not first) or (matmul and not scale):
        return False  # MatMul has no bias input; the lowering takes it
    per = _per_channel(constant, weight.shape[axis], len(dims), last=matmul)
    if per is None or not np.all(np.isfinite(per)) or (user.op_type == "Div" and np.any(per == 0)):
        return False
    bias = np.zeros(weight.shape[axis])
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        given = _edit.array(node.inputs[2])
        if given is None:
            return False
        bias = given.astype(np.float64)
    wide = weight.astype(np.float64)
    if scale:
        factor = per if user.op_type == "Mul" else 1 / per
        wide = wide * factor.reshape([-1 if k == axis else 1 for k in range(weight.ndim)])
        bias = bias * factor
    elif user.op_type == "Add":
        bias = bias + per
    else:
        sign = 1.0 if first else -1.0
        wide, bias = wide * sign, (bias - per) * sign
    with np.errstate(over="ignore"):
        narrow = wide.astype(weight.dtype)
    if not np.all(np.isfinite(narrow)):
        return False
    name = node.inputs[1].name if node.inputs[1] is not None else None
    inputs = [node.inputs[0], _edit.add_constant(node.graph, narrow, f"{name or 'weight'}__scaled")]
    if not matmul:
        inputs.append(_edit.add_constant(node.graph, bias.astype(weight.dtype), f"{node.outputs[0].name}__bias"))
    _edit.replace_node(user, node.op_type, inputs, node.attributes, also=[node])
    return True


def call(model: ir.Model) -> int:
    """Absorb until nothing changes."""
    count = 0
    again = True
    while again:
        again = False
        for node in _edit.nodes(model):
            if node.graph is not None and node.op_type in ("Conv", "ConvTranspose", "MatMul") and _absorb(node):
                count, again = count + 1, True
    return count
