"""A transposed convolution as a convolution of the small image and a DepthToSpace; what both passes share."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._operators import ELEMENTWISE
from opforge.passes.infer_shapes import dims_of

__all__ = ["place", "weight_of"]

Array = np.ndarray[Any, np.dtype[np.float32]]


def weight_of(node: ir.Node) -> Array | None:
    """Return the constant f32 weights of a 2-D ConvTranspose without groups, dilations or implied sizes, or None."""
    if node.graph is None or not _edit.is_op(node, "ConvTranspose"):
        return None
    weight, dims = _edit.array(node.inputs[1]), dims_of(node.inputs[0])
    constant_bias = len(node.inputs) < 3 or node.inputs[2] is None or _edit.array(node.inputs[2]) is not None
    if weight is None or dims is None or len(dims) != 4 or weight.dtype != np.float32 or not constant_bias:
        return None
    plain = (
        _edit.attribute(node, "group", 1) == 1
        and not _edit.attribute(node, "output_shape")
        and all(d == 1 for d in _edit.attribute(node, "dilations") or [1])
        and _edit.attribute(node, "auto_pad", "NOTSET") == "NOTSET"
    )
    return weight if plain else None


def _elementwise_behind(value: ir.Value) -> list[ir.Node]:
    """Return the chain of nodes behind that read only this value and numbers."""
    chain: list[ir.Node] = []
    while (user := _edit.only_consumer(value)) is not None and _edit.is_op(user, *ELEMENTWISE):
        if any(v is not value and _edit.scalar(v) is None for v in user.inputs if v is not None):
            break
        if user.outputs[0].dtype != value.dtype:
            break
        chain.append(user)
        value = user.outputs[0]
    return chain


def place(node: ir.Node, weight: Array, attributes: dict[str, Any], block: int, mode: str) -> None:
    """Replace a ConvTranspose; elementwise nodes behind it move in front of the DepthToSpace.

    Args:
        node: the transposed convolution.
        weight: of the convolution, ``[out * block * block, channels, KH, KW]`` in the order of ``mode``.
        attributes: of the convolution.
        block: pixels that an input pixel becomes, along each axis.
        mode: of the DepthToSpace.
    """
    assert node.graph is not None
    name = node.outputs[0].name or "deconvolution"
    inputs = [node.inputs[0], _edit.add_constant(node.graph, np.ascontiguousarray(weight), f"{name}__weights")]
    bias = _edit.array(node.inputs[2]) if len(node.inputs) > 2 else None
    if bias is not None:
        places = block * block
        repeated = np.repeat(bias, places) if mode == "CRD" else np.tile(bias, places)
        inputs.append(_edit.add_constant(node.graph, repeated, f"{name}__bias"))
    chain = _elementwise_behind(node.outputs[0])
    given = ir.convenience.convert_attributes({"kernel_shape": list(weight.shape[2:]), **attributes})
    small = ir.Node("", "Conv", inputs, given, num_outputs=1, name=node.name)
    _edit.insert_before(node, small)
    value = small.outputs[0]
    value.name, value.type = f"{name}__small", node.outputs[0].type
    last = node
    for user in chain:
        operands = [value if v is last.outputs[0] else v for v in user.inputs]
        moved = ir.Node("", user.op_type, operands, user.attributes.values(), num_outputs=1, name=user.name)
        _edit.insert_before(user, moved)
        value, last = moved.outputs[0], user
        value.name, value.type = f"{user.outputs[0].name}__small", user.outputs[0].type
    _edit.replace_node(last, "DepthToSpace", [value], {"blocksize": block, "mode": mode}, also=[node, *chain])
