"""auto_pad of convolutions and pools becomes explicit pads wherever the padding does not depend on an unknown size."""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "explicit_pads"
REQUIRES: tuple[str, ...] = ("shapes",)
ENSURES: tuple[str, ...] = ()

OPERATORS = ("Conv", "MaxPool", "AveragePool", "LpPool")


def _pads(node: ir.Node, mode: str) -> list[int] | None:
    dims, weight = dims_of(node.inputs[0]), dims_of(node.inputs[1]) if len(node.inputs) > 1 else None
    kernel = _edit.attribute(node, "kernel_shape") or [d.constant for d in (weight or [])[2:]]
    if dims is None or not kernel or any(k is None for k in kernel):
        return None
    n = len(kernel)
    if mode == "VALID":
        return [0] * 2 * n
    strides = _edit.attribute(node, "strides") or [1] * n
    dilations = _edit.attribute(node, "dilations") or [1] * n
    before, after = [], []
    for k in range(n):
        span, size = dilations[k] * (kernel[k] - 1) + 1, dims[2 + k].constant
        if strides[k] == 1:
            total = span - 1
        elif size is not None:
            total = max(0, (-(-size // strides[k]) - 1) * strides[k] + span - size)
        else:
            return None
        small = total // 2
        before.append(small if mode == "SAME_UPPER" else total - small)
        after.append(total - before[-1])
    return before + after


def call(model: ir.Model) -> int:
    """Replace the attribute."""
    count = 0
    for node in _edit.nodes(model):
        mode = _edit.attribute(node, "auto_pad", "NOTSET")
        if not _edit.is_op(node, *OPERATORS) or mode == "NOTSET":
            continue
        pads = _pads(node, mode)
        if pads is not None:
            node.attributes.pop("auto_pad")
            node.attributes["pads"] = ir.AttrInt64s("pads", pads)
            count += 1
    return count
