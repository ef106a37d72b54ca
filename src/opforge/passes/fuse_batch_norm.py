"""Batch normalisation behind a convolution goes into the convolution's weights and bias."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "fuse_batch_norm"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _fuse(norm: ir.Node) -> bool:
    x = norm.inputs[0]
    conv = x.producer() if x is not None else None
    if (
        x is None
        or conv is None
        or not _edit.is_op(conv, "Conv")
        or _edit.only_consumer(x) is not norm
        or norm.graph is None
    ):
        return False
    weight = _edit.array(conv.inputs[1])
    bias = _edit.array(conv.inputs[2]) if len(conv.inputs) > 2 and conv.inputs[2] is not None else None
    arrays = [_edit.array(v) for v in norm.inputs[1:5]]
    if weight is None or weight.dtype not in (np.float32, np.float64) or any(a is None for a in arrays):
        return False
    if bias is None and len(conv.inputs) > 2 and conv.inputs[2] is not None:
        return False  # a bias that is computed at run time
    scale, shift, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    factor = scale / np.sqrt(variance + float(_edit.attribute(norm, "epsilon", 1e-5)))
    wide = weight.astype(np.float64) * factor.reshape(-1, *[1] * (weight.ndim - 1))
    offset = ((0.0 if bias is None else bias.astype(np.float64)) - mean) * factor + shift
    with np.errstate(over="ignore"):
        narrow = wide.astype(weight.dtype), offset.astype(weight.dtype)
    if not all(np.all(np.isfinite(a)) for a in narrow):
        return False
    name = conv.outputs[0].name or "conv"
    constants = [
        _edit.add_constant(norm.graph, a, f"{name}__{k}") for a, k in zip(narrow, ("weight", "bias"), strict=True)
    ]
    _edit.replace_node(norm, "Conv", [conv.inputs[0], *constants], conv.attributes, also=[conv])
    return True


def call(model: ir.Model) -> int:
    """Fuse every BatchNormalization (inference form) whose only producer is a convolution with constant weights."""
    count = 0
    for node in _edit.nodes(model):
        if not _edit.is_op(node, "BatchNormalization") or _edit.attribute(node, "training_mode", 0):
            continue
        if any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
            continue
        count += _fuse(node)
    return count
