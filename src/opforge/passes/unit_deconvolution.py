"""A transposed convolution of stride 1 is a convolution with the weights turned around.

Output pixel ``q`` adds ``x[q + pad - d * t] * w[t]`` over the taps t: a convolution whose window begins
``d * (k - 1) - pad`` pixels before it and reads the taps from the last to the first.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "unit_deconvolution"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def call(model: ir.Model) -> int:
    """Replace."""
    count = 0
    for node in _edit.nodes(model):
        if node.graph is None or not _edit.is_op(node, "ConvTranspose"):
            continue
        weight = _edit.array(node.inputs[1])
        if weight is None or weight.ndim < 3 or not weight.size:
            continue
        kernel = list(weight.shape[2:])
        n, group = len(kernel), int(_edit.attribute(node, "group", 1))
        dilations = list(_edit.attribute(node, "dilations") or [1] * n)
        extra = list(_edit.attribute(node, "output_padding") or [0] * n)
        pads = list(_edit.attribute(node, "pads") or [0] * 2 * n)
        plain = (
            all(s == 1 for s in _edit.attribute(node, "strides") or [1])
            and not _edit.attribute(node, "output_shape")
            and _edit.attribute(node, "auto_pad", "NOTSET") == "NOTSET"
            and list(_edit.attribute(node, "kernel_shape") or kernel) == kernel
        )
        if not plain or group < 1 or weight.shape[0] % group or not len(dilations) == len(extra) == len(pads) // 2 == n:
            continue
        reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        around = [reach[i] - pads[i] for i in range(n)] + [reach[i] - pads[n + i] + extra[i] for i in range(n)]
        if any(p < 0 for p in around):
            continue
        parts = weight.reshape(group, -1, *weight.shape[1:]).swapaxes(1, 2)
        turned = np.flip(parts.reshape(-1, *parts.shape[2:]), tuple(range(2, 2 + n)))
        name = f"{node.outputs[0].name or 'deconvolution'}__turned"
        held = _edit.add_constant(node.graph, np.ascontiguousarray(turned), name)
        attributes = {"kernel_shape": kernel, "dilations": dilations, "pads": around, "group": group}
        _edit.replace_node(node, "Conv", [node.inputs[0], held, *node.inputs[2:]], attributes)
        count += 1
    return count
