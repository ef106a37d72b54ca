"""A transposed convolution whose windows do not overlap is a 1x1 convolution and a DepthToSpace.

Done where few channels come out: channels in blocks of 16 would be mostly padding, while the 1x1 convolution fills the
block with the pixels of a window. Elementwise nodes behind move in front of the DepthToSpace, to the small planes.
2x2 windows stay: the runtime's ConvTranspose does the same inside and writes the plain result itself.
"""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._subpixel import place, weight_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "split_deconvolution"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()

MOST = 16
"""Channels of the 1x1 convolution: one block."""


def call(model: ir.Model) -> int:
    """Replace."""
    count = 0
    for node in _edit.nodes(model):
        weight = weight_of(node)
        if weight is None or any(any(_edit.attribute(node, name) or []) for name in ("pads", "output_padding")):
            continue
        channels, out, k, across = weight.shape
        if k != across or k < 3 or [k, k] != _edit.attribute(node, "strides") or out * k * k > MOST:
            continue
        narrow = weight.transpose(1, 2, 3, 0).reshape(out * k * k, channels, 1, 1)
        place(node, narrow, {}, int(k), "CRD")
        count += 1
    return count
