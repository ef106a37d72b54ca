"""Convolutions, transposed convolutions and pooling: windows that slide over one, two or three axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from opforge.engines.ncnn._builder import Blob, Builder, Refused, attribute
from opforge.engines.ncnn._elementwise import Rule
from opforge.engines.ncnn._net import Array, Param, Weight

__all__ = ["RULES"]

_SUFFIX: Final = {1: "1D", 2: "", 3: "3D"}

# Per axis, innermost first (w, h, d): the numbers of ncnn's parameters.
_KERNEL, _DILATION, _STRIDE = (1, 11, 21), (2, 12, 22), (3, 13, 23)
_BEFORE, _AFTER = (4, 14, 24), (15, 16, 17)
_MORE: Final = {1: (18,), 2: (18, 19), 3: (18, 19, 20)}  # output_padding
_POOL_KERNEL, _POOL_STRIDE = (1, 11, 21), (2, 12, 22)
_POOL_BEFORE, _POOL_AFTER = (3, 13, 23), (14, 15, 16)

_SAME: Final = {"SAME_UPPER": -233, "SAME_LOWER": -234}
_POOL_SAME: Final = {"SAME_UPPER": 2, "SAME_LOWER": 3}


def _rows(ids: Sequence[int], sizes: Sequence[int]) -> dict[int, Param]:
    """Number sizes, which ONNX gives outermost first."""
    return dict(zip(ids, map(int, reversed(sizes)), strict=False))


def _axes(b: Builder, node: ir.Node) -> int:
    axes = len(b.dims(node.inputs[0])) - 2
    if axes not in _SUFFIX:
        raise Refused(f"{axes} spatial axes")
    return axes


def _weights(b: Builder, node: ir.Node) -> tuple[Array, Array | None]:
    weight = b.weight(node.inputs[1], "weights")
    held = node.inputs[2] if len(node.inputs) > 2 else None
    return weight, None if held is None else b.weight(held, "a bias").reshape(-1)


def _conv(b: Builder, node: ir.Node) -> None:
    axes, (weight, bias) = _axes(b, node), _weights(b, node)
    group = int(attribute(node, "group", 1))
    params: dict[int, Param] = {
        0: weight.shape[0],
        5: int(bias is not None),
        6: weight.size,
        **({7: group} if group > 1 else {}),
        **_rows(_KERNEL, weight.shape[2:]),
        **_rows(_DILATION, attribute(node, "dilations", [1] * axes)),
        **_rows(_STRIDE, attribute(node, "strides", [1] * axes)),
    }
    mode = attribute(node, "auto_pad", "NOTSET")
    if mode in _SAME:
        if axes == 3:
            raise Refused("auto_pad over three axes of open size")
        params |= dict.fromkeys((*_BEFORE[:axes], *_AFTER[:axes]), _SAME[mode])
    else:
        params |= _pads(node, axes, _BEFORE, _AFTER)
    kind = ("ConvolutionDepthWise" if group > 1 else "Convolution") + _SUFFIX[axes]
    b.layer(node, kind, [b.inner(node.inputs[0], "Conv")], params, _stored(weight, bias))


def _pads(node: ir.Node, axes: int, before: Sequence[int], after: Sequence[int]) -> dict[int, Param]:
    pads: list[int] = attribute(node, "pads", [0] * 2 * axes)
    return {**_rows(before, pads[:axes]), **_rows(after, pads[axes:])}


def _stored(weight: Array, bias: Array | None) -> list[Weight]:
    return [Weight(weight.reshape(-1), tagged=True), *([] if bias is None else [Weight(bias, tagged=False)])]


def _deconv(b: Builder, node: ir.Node) -> None:
    axes, (weight, bias) = _axes(b, node), _weights(b, node)
    group = int(attribute(node, "group", 1))
    if attribute(node, "output_shape") is not None or attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Refused("auto_pad or output_shape: write pads")
    per_group = weight.shape[1]
    # ONNX has input channels first, ncnn per group output channels first.
    grouped = weight.reshape(group, weight.shape[0] // group, per_group, *weight.shape[2:])
    params: dict[int, Param] = {
        0: per_group * group,
        5: int(bias is not None),
        6: weight.size,
        **({7: group} if group > 1 else {}),
        **_rows(_KERNEL, weight.shape[2:]),
        **_rows(_DILATION, attribute(node, "dilations", [1] * axes)),
        **_rows(_STRIDE, attribute(node, "strides", [1] * axes)),
        **_pads(node, axes, _BEFORE, _AFTER),
        **_rows(_MORE[axes], attribute(node, "output_padding", [0] * axes)),
    }
    kind = ("DeconvolutionDepthWise" if group > 1 else "Deconvolution") + _SUFFIX[axes]
    stored = _stored(np.ascontiguousarray(grouped.swapaxes(1, 2)), bias)
    b.layer(node, kind, [b.inner(node.inputs[0], "ConvTranspose")], params, stored)


def _pool(b: Builder, node: ir.Node) -> None:
    axes = _axes(b, node)
    if len(node.outputs) > 1 and node.outputs[1].uses():
        raise Refused("indices of the largest elements")
    if any(d != 1 for d in attribute(node, "dilations", [])):
        raise Refused("dilated windows")
    if int(attribute(node, "storage_order", 0)):
        raise Refused("storage_order")
    average = node.op_type == "AveragePool"
    ceil, include = bool(attribute(node, "ceil_mode", 0)), bool(attribute(node, "count_include_pad", 0))
    if average and ceil and include:
        raise Refused("ceil_mode with count_include_pad, which ncnn counts otherwise")
    kernel = attribute(node, "kernel_shape")
    strides = attribute(node, "strides", [1] * axes)
    params: dict[int, Param] = {
        0: int(average),
        5: 0 if ceil else 1,
        **({6: int(include)} if average else {}),
        **_rows(_POOL_KERNEL, kernel),
        **_rows(_POOL_STRIDE, strides),
    }
    mode = attribute(node, "auto_pad", "NOTSET")
    if mode in _POOL_SAME:
        if average:
            raise Refused("auto_pad of an average over axes of open size, which ncnn counts otherwise")
        params |= {5: _POOL_SAME[mode]}
    else:
        params |= _pads(node, axes, _POOL_BEFORE, _POOL_AFTER)
        if ceil:
            _same_ceiling(b, node, kernel, strides)
    b.layer(node, "Pooling" + _SUFFIX[axes], [b.inner(node.inputs[0], node.op_type)], params)


def _same_ceiling(b: Builder, node: ir.Node, kernel: Sequence[int], strides: Sequence[int]) -> None:
    """Refuse sizes for which ONNX leaves out a last window that lies in the padding alone, and ncnn does not."""
    axes = len(kernel)
    pads: list[int] = attribute(node, "pads", [0] * 2 * axes)
    for k, (before, after) in enumerate(zip(b.dims(node.inputs[0])[2:], b.dims(node.outputs[0])[2:], strict=True)):
        if before.constant is None or after.constant is None:
            if pads[axes + k] or strides[k] > kernel[k]:
                raise Refused("ceil_mode with padding over an axis of open size")
            continue
        if -(-(before.constant + pads[k] + pads[axes + k] - kernel[k]) // strides[k]) + 1 != after.constant:
            raise Refused("ceil_mode with a last window in the padding, which ncnn does not leave out")


def _global_pool(b: Builder, node: ir.Node) -> None:
    axes, x = _axes(b, node), b.inner(node.inputs[0], node.op_type)
    params: dict[int, Param] = {0: int(node.op_type == "GlobalAveragePool"), 4: 1}
    flat = Blob(b.name(f"{node.outputs[0].name}__pooled"), x.dims[1:2])
    b.add_many("Pooling" + _SUFFIX[axes], [x], [flat], params)
    b.give(node.outputs[0], b.form(flat, b.dims(node.outputs[0]), 1))


RULES: Final[Mapping[str, Rule]] = {
    "Conv": _conv,
    "ConvTranspose": _deconv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
}
"""Operator -> what adds its layers."""
