"""Batch normalisation at inference is one multiplication and one addition per channel (constants in float64)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "decompose_batch_norm"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()


def call(model: ir.Model) -> int:
    """Replace each BatchNormalization with constant statistics by Mul and Add."""
    count = 0
    for node in _edit.nodes(model):
        if not _edit.is_op(node, "BatchNormalization") or _edit.attribute(node, "training_mode", 0):
            continue
        if any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
            continue
        x, arrays = node.inputs[0], [_edit.array(v) for v in node.inputs[1:5]]
        dims = dims_of(x)
        if x is None or dims is None or node.graph is None or any(a is None for a in arrays):
            continue
        scale, shift, mean, variance = (np.asarray(a, np.float64) for a in arrays)
        factor = scale / np.sqrt(variance + float(_edit.attribute(node, "epsilon", 1e-5)))
        offset = shift - mean * factor
        shape = (-1,) + (1,) * (len(dims) - 2)
        dtype = x.dtype.numpy() if x.dtype else np.dtype(np.float32)
        name = node.outputs[0].name or "batch_norm"
        a = _edit.add_constant(node.graph, factor.reshape(shape).astype(dtype), f"{name}__scale")
        b = _edit.add_constant(node.graph, offset.reshape(shape).astype(dtype), f"{name}__shift")
        product = ir.Node("", "Mul", [x, a], num_outputs=1, name=node.name)
        _edit.insert_before(node, product)
        _edit.set_meta(product.outputs[0], node.outputs[0])
        product.outputs[0].name = f"{name}__scaled"
        _edit.replace_node(node, "Add", [product.outputs[0], b])
        count += 1
    return count
