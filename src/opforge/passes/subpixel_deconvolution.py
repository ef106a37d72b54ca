"""A strided transposed convolution is one convolution of the small image that gives every pixel of a block.

Output pixel ``s*q + r`` adds ``x[q - m] * w[s*m + r + pad]`` over the m for which that tap exists. So each place r of a
block of s by s pixels is a convolution of its own with the same window of the input; their weights are stacked, taps
that a place lacks are zero, and DepthToSpace puts the places where they belong. It needs the output to be exactly s
times the input, as it is for 4x4, stride 2, padding 1 and for 3x3, stride 2, padding 1, output padding 1.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._subpixel import Array, place, weight_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "subpixel_deconvolution"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()


def _stacked(weight: Array, stride: int, before: tuple[int, int]) -> tuple[Array, list[int]]:
    """Return the weights ``[place * out, channels, KH, KW]`` of the convolution, and its pads."""
    channels, out, kh, kw = weight.shape
    least = [-((stride - 1 + p) // stride) for p in before]
    most = [(k - 1 - p) // stride for k, p in zip((kh, kw), before, strict=True)]
    window = [b - a + 1 for a, b in zip(least, most, strict=True)]
    stacked = np.zeros((stride, stride, out, channels, *window), np.float32)
    for at in np.ndindex(stride, stride, *window):
        tap = [stride * (most[i] - at[2 + i]) + at[i] + before[i] for i in (0, 1)]
        if 0 <= tap[0] < kh and 0 <= tap[1] < kw:
            stacked[at[0], at[1], :, :, at[2], at[3]] = weight[:, :, tap[0], tap[1]].T
    return stacked.reshape(-1, channels, *window), [most[0], most[1], -least[0], -least[1]]


def call(model: ir.Model) -> int:
    """Replace."""
    count = 0
    for node in _edit.nodes(model):
        weight = weight_of(node)
        if weight is None or not weight.size:
            continue
        kernel = [int(k) for k in weight.shape[2:]]
        strides = list(_edit.attribute(node, "strides") or [1, 1])
        pads = list(_edit.attribute(node, "pads") or [0] * 4)
        extra = list(_edit.attribute(node, "output_padding") or [0, 0])
        if strides[0] != strides[1] or not 2 <= strides[0] <= 8 or kernel == strides:
            continue
        exact = all(kernel[i] - strides[i] - pads[i] - pads[2 + i] + extra[i] == 0 for i in (0, 1))
        if not exact or any(p < 0 for p in pads) or any(k <= p for k, p in zip(kernel, pads, strict=False)):
            continue
        stacked, around = _stacked(weight, strides[0], (pads[0], pads[1]))
        place(node, stacked, {"pads": around}, strides[0], "DCR")
        count += 1
    return count
