"""A transposed convolution whose windows do not overlap is a 1x1 convolution and a DepthToSpace.

Done where few channels come out: channels in blocks of 16 would be mostly padding, while the 1x1 convolution fills the
block with the pixels of a window. Elementwise nodes behind move in front of the DepthToSpace, to the small planes.
2x2 windows stay: the runtime's ConvTranspose does the same inside and writes the plain result itself.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._operators import ELEMENTWISE
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "split_deconvolution"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()

MOST = 16
"""Channels of the 1x1 convolution: one block."""


def _fits(node: ir.Node, weight: np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None) -> bool:
    dims = dims_of(node.inputs[0])
    if weight is None or dims is None or len(dims) != 4 or weight.dtype != np.float32:
        return False
    k = list(weight.shape[2:])
    plain = (
        _edit.attribute(node, "group", 1) == 1
        and not any(any(_edit.attribute(node, name) or []) for name in ("pads", "output_padding", "output_shape"))
        and all(d == 1 for d in _edit.attribute(node, "dilations") or [1])
        and _edit.attribute(node, "auto_pad", "NOTSET") == "NOTSET"
    )
    windows = k[0] == k[1] > 2 and k == _edit.attribute(node, "strides")
    return plain and windows and weight.shape[1] * k[0] ** 2 <= MOST


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


def _split(node: ir.Node, weight: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    assert node.graph is not None
    channels, out, k, _ = weight.shape
    name = node.outputs[0].name or "deconvolution"
    narrow = weight.transpose(1, 2, 3, 0).reshape(out * k * k, channels, 1, 1)
    inputs = [node.inputs[0], _edit.add_constant(node.graph, np.ascontiguousarray(narrow), f"{name}__weights")]
    bias = _edit.array(node.inputs[2]) if len(node.inputs) > 2 else None
    if bias is not None:
        inputs.append(_edit.add_constant(node.graph, np.repeat(bias, k * k), f"{name}__bias"))
    chain = _elementwise_behind(node.outputs[0])
    attributes = ir.convenience.convert_attributes({"kernel_shape": [1, 1]})
    small = ir.Node("", "Conv", inputs, attributes, num_outputs=1, name=node.name)
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
    _edit.replace_node(last, "DepthToSpace", [value], {"blocksize": int(k), "mode": "CRD"}, also=[node, *chain])


def call(model: ir.Model) -> int:
    """Replace."""
    count = 0
    for node in _edit.nodes(model):
        if node.graph is None or not _edit.is_op(node, "ConvTranspose"):
            continue
        weight = _edit.array(node.inputs[1])
        constant_bias = len(node.inputs) < 3 or node.inputs[2] is None or _edit.array(node.inputs[2]) is not None
        if weight is not None and _fits(node, weight) and constant_bias:
            _split(node, weight)
            count += 1
    return count
