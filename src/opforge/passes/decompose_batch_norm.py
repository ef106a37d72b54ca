"""Batch normalisation at inference is one multiplication and one addition per channel (constants in float64).

Of a half type both are f32, between conversions, since the operator rounds once.
"""

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
        half = x.dtype if x.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16) else None
        dtype = x.dtype.numpy() if x.dtype and half is None else np.dtype(np.float32)
        name = node.outputs[0].name or "batch_norm"

        def step(op: str, inputs: list[ir.Value], suffix: str, **attributes: int) -> ir.Value:
            made = ir.Node("", op, inputs, ir.convenience.convert_attributes(attributes), num_outputs=1, name=node.name)  # noqa: B023
            _edit.insert_before(node, made)  # noqa: B023 - called within the iteration
            _edit.set_meta(made.outputs[0], node.outputs[0])  # noqa: B023
            made.outputs[0].type = ir.TensorType(ir.DataType.from_numpy(dtype))  # noqa: B023
            made.outputs[0].name = f"{name}__{suffix}"  # noqa: B023
            return made.outputs[0]

        a = _edit.add_constant(node.graph, factor.reshape(shape).astype(dtype), f"{name}__scale")
        b = _edit.add_constant(node.graph, offset.reshape(shape).astype(dtype), f"{name}__shift")
        wide = x if half is None else step("Cast", [x], "wide", to=int(ir.DataType.FLOAT))
        product = step("Mul", [wide, a], "scaled")
        if half is None:
            _edit.replace_node(node, "Add", [product, b])
        else:
            _edit.replace_node(node, "Cast", [step("Add", [product, b], "shifted")], {"to": int(half)})
        count += 1
    return count
