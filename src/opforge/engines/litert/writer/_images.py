"""Convolutions and pools: LiteRT has them for images with channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from opforge.engines.litert.writer._scope import OpenShapeError, Row, Scope, refuse
from opforge.passes import _edit
from opforge.schema import DType

__all__ = ["ROWS"]

_SAME, _VALID = 0, 1


def _two_axes(node: ir.Node, dims: Sequence[object]) -> None:
    if len(dims) != 4:
        raise refuse(node, "LiteRT computes this over two axes only", f"{len(dims) - 2} axes")


def _same(
    sizes: Sequence[int | None], kernel: Sequence[int], stride: Sequence[int], step: Sequence[int], pads: Sequence[int]
) -> bool:
    """Whether pads are those that the mode SAME computes."""
    for k in range(2):
        size, reach = sizes[k], (kernel[k] - 1) * step[k] + 1
        begin, end = pads[k], pads[k + 2]
        if size is None:
            if stride[k] != 1:
                return False
            total = reach - 1
        else:
            total = max((math.ceil(size / stride[k]) - 1) * stride[k] + reach - size, 0)
        if (begin, end) != (total // 2, total - total // 2):
            return False
    return True


def _padded(scope: Scope, node: ir.Node, value: ir.Value, kernel: Sequence[int], fill: float | None) -> tuple[int, int]:
    """Return the images, padded where the mode SAME does not say it, and the mode.

    Args:
        scope: where nodes are written.
        node: with strides, dilations and pads.
        value: what is padded.
        kernel: height and width of the window.
        fill: of the border; None = the window must leave the border out, which only SAME does.
    """
    pads = _edit.attribute(node, "pads") or [0] * 4
    stride, step = _edit.attribute(node, "strides") or [1, 1], _edit.attribute(node, "dilations") or [1, 1]
    dims = scope.dims(value)
    if _edit.attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise OpenShapeError("padding that depends on a size that is not known", where=value.name)
    if not any(pads):
        return scope.images(value), _VALID
    if _same(dims[2:], kernel, stride, step, pads):
        return scope.images(value), _SAME
    if fill is None:
        raise refuse(node, "LiteRT has no such padding for averages that leave the border out", f"pads {pads}")
    rows = scope.constant(np.array([[0, 0], [pads[0], pads[2]], [pads[1], pads[3]], [0, 0]], np.int32))
    wider = [d if d is None else d + p for d, p in zip(dims[2:], (pads[0] + pads[2], pads[1] + pads[3]), strict=True)]
    inputs = [scope.images(value), rows, scope.scalar(fill, scope.dtype(value))]
    return scope.made("PADV2", inputs, scope.dtype(value), [dims[0], *wider, dims[1]], "PadV2Options"), _VALID


def _weights(scope: Scope, node: ir.Node) -> np.ndarray[Any, Any]:
    data = _edit.array(node.inputs[1])
    if data is None:
        raise refuse(node, "weights that are computed cannot be written")
    return data


def _bias(scope: Scope, node: ir.Node, count: int, dtype: str) -> int:
    given = node.inputs[2] if len(node.inputs) > 2 else None
    return scope.tensor(given) if given is not None else scope.constant(np.zeros(count, DType.parse(dtype).numpy))


def _conv(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    dims = scope.dims(value)
    _two_axes(node, dims)
    weights = _weights(scope, node)
    group = _edit.attribute(node, "group", 1)
    images, mode = _padded(scope, node, value, weights.shape[2:], 0.0)
    stride, step = _edit.attribute(node, "strides") or [1, 1], _edit.attribute(node, "dilations") or [1, 1]
    fields = {
        "padding": mode,
        "strideH": stride[0],
        "strideW": stride[1],
        "fusedActivationFunction": 0,
        "dilationHFactor": step[0],
        "dilationWFactor": step[1],
    }
    bias = _bias(scope, node, weights.shape[0], scope.dtype(value))
    if group > 1 and weights.shape[1] == 1 and group == dims[1]:
        turned = np.ascontiguousarray(weights.transpose(1, 2, 3, 0))
        inputs = [images, scope.constant(turned), bias]
        scope.node(
            "DEPTHWISE_CONV_2D",
            inputs,
            [scope.define_images(out)],
            "DepthwiseConv2DOptions",
            depthMultiplier=weights.shape[0] // group,
            **fields,
        )
        return
    turned = np.ascontiguousarray(weights.transpose(0, 2, 3, 1))
    scope.node("CONV_2D", [images, scope.constant(turned), bias], [scope.define_images(out)], "Conv2DOptions", **fields)


def _conv_transpose(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    _two_axes(node, scope.dims(value))
    weights = _weights(scope, node)
    pads = _edit.attribute(node, "pads") or [0] * 4
    stride, step = _edit.attribute(node, "strides") or [1, 1], _edit.attribute(node, "dilations") or [1, 1]
    if _edit.attribute(node, "group", 1) != 1 or list(step) != [1, 1]:
        raise refuse(node, "LiteRT has no transposed convolution with groups or dilation")
    dims, sizes = scope.known(value), scope.known(out)
    whole = [(d - 1) * s + k for d, s, k in zip(dims[2:], stride, weights.shape[2:], strict=True)]
    mode = _edit.attribute(node, "auto_pad", "NOTSET")
    if mode.startswith("SAME") or _edit.attribute(node, "output_shape"):  # the size says what is cut off
        cut = [max(w - size, 0) for w, size in zip(whole, sizes[2:], strict=True)]
        pads = [c // 2 if mode == "SAME_UPPER" else c - c // 2 for c in cut]
    reach = [max(w, size + p) for w, size, p in zip(whole, sizes[2:], pads, strict=False)]
    dtype, channels = scope.dtype(value), weights.shape[1]
    inputs = [
        scope.constant([dims[0], *whole, channels]),
        scope.constant(np.ascontiguousarray(weights.transpose(1, 2, 3, 0))),
        scope.images(value),
        _bias(scope, node, channels, dtype),
    ]
    if reach != whole:
        raise refuse(node, "an output that is larger than the products reach", f"output_padding, {sizes[2:]}")
    fields = {"padding": _VALID, "strideH": stride[0], "strideW": stride[1], "fusedActivationFunction": 0}
    if whole == sizes[2:]:
        scope.node("TRANSPOSE_CONV", inputs, [scope.define_images(out)], "TransposeConvOptions", **fields)
        return
    made = scope.made("TRANSPOSE_CONV", inputs, dtype, [dims[0], *whole, channels], "TransposeConvOptions", **fields)
    begin = scope.constant([0, pads[0], pads[1], 0])
    size = scope.constant([dims[0], *sizes[2:], channels])
    scope.node("SLICE", [made, begin, size], [scope.define_images(out)], "SliceOptions")


def _pool(kind: str) -> Row:
    def row(scope: Scope, node: ir.Node) -> None:
        value, out = node.inputs[0], node.outputs[0]
        assert value is not None
        dims = scope.dims(value)
        _two_axes(node, dims)
        if list(_edit.attribute(node, "dilations") or [1, 1]) != [1, 1] or len([o for o in node.outputs if o.name]) > 1:
            raise refuse(node, "LiteRT's pools have neither dilation nor places")
        kernel, stride = _edit.attribute(node, "kernel_shape"), _edit.attribute(node, "strides") or [1, 1]
        pads = _edit.attribute(node, "pads") or [0] * 4
        if _edit.attribute(node, "ceil_mode", 0):
            sizes = scope.known(value)[2:]
            if any((n + pads[k] + pads[k + 2] - kernel[k]) % stride[k] for k, n in enumerate(sizes)):
                raise refuse(node, "LiteRT's pools leave out windows that are cut off", "ceil_mode=1")
        kind_of = DType.parse(scope.dtype(value)).numpy
        fill: float | None = -math.inf if kind_of.kind not in "iu" else int(np.iinfo(kind_of).min)
        if kind == "AVERAGE_POOL_2D":
            fill = 0.0 if _edit.attribute(node, "count_include_pad", 0) else None
        images, mode = _padded(scope, node, value, kernel, fill)
        if kind == "AVERAGE_POOL_2D" and fill is not None and mode == _SAME:  # which would leave the border out
            raise refuse(node, "LiteRT leaves the border out of averages", "count_include_pad=1")
        scope.node(
            kind,
            [images],
            [scope.define_images(out)],
            "Pool2DOptions",
            padding=mode,
            strideH=stride[0],
            strideW=stride[1],
            filterHeight=kernel[0],
            filterWidth=kernel[1],
            fusedActivationFunction=0,
        )

    return row


def _global_pool(kind: str) -> Row:
    def row(scope: Scope, node: ir.Node) -> None:
        value, out = node.inputs[0], node.outputs[0]
        assert value is not None
        if scope.is_images(value):
            inputs = [scope.images(value), scope.constant([1, 2])]
            scope.node(kind, inputs, [scope.define_images(out)], "ReducerOptions", keepDims=True)
            return
        inputs = [scope.tensor(value), scope.constant(list(range(2, len(scope.dims(value)))))]
        scope.node(kind, inputs, [scope.define(out)], "ReducerOptions", keepDims=True)

    return row


_MODES: Final = {"nearest": "RESIZE_NEAREST_NEIGHBOR", "linear": "RESIZE_BILINEAR"}
_OPTIONS: Final = {"nearest": "ResizeNearestNeighborOptions", "linear": "ResizeBilinearOptions"}
_WAYS: Final = {
    ("nearest", "asymmetric", "floor"): {},
    ("linear", "asymmetric", None): {},
    ("linear", "half_pixel", None): {"halfPixelCenters": True},
    ("linear", "align_corners", None): {"alignCorners": True},
}
"""Mode, coordinates and rounding of a Resize that LiteRT computes too."""


def _resize(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    dims, sizes = scope.known(value), scope.known(out)
    _two_axes(node, dims)
    mode = _edit.attribute(node, "mode", "nearest")
    coordinates = _edit.attribute(node, "coordinate_transformation_mode", "half_pixel")
    rounding = _edit.attribute(node, "nearest_mode", "round_prefer_floor") if mode == "nearest" else None
    whole = all(size % d == 0 for size, d in zip(sizes, dims, strict=True))
    scales = _edit.array(node.inputs[2]) if len(node.inputs) > 2 else None
    if scales is not None:  # ONNX computes with these, LiteRT with the sizes
        axes = _edit.attribute(node, "axes") or range(len(dims))
        wanted = dict(zip(axes, scales.reshape(-1).tolist(), strict=False))
        off = max((abs(dims[axis] * scale / sizes[axis] - 1) for axis, scale in wanted.items()), default=0.0)
        if off > (0.0 if mode == "nearest" else 1e-6):
            raise refuse(node, "LiteRT resizes by sizes alone", f"scales {scales.tolist()} from {dims} to {sizes}")
    blocks = rounding in ("round_prefer_floor", "round_prefer_ceil")
    if blocks and whole and coordinates == "half_pixel":  # each element becomes a block either way
        coordinates, rounding = "asymmetric", "floor"
    fields = _WAYS.get((mode, coordinates, rounding))
    if fields is None or dims[:2] != sizes[:2] or _edit.attribute(node, "antialias", 0):
        raise refuse(node, "LiteRT has no such way to resize", f"{mode}, {coordinates}, {rounding}")
    inputs = [scope.images(value), scope.constant(sizes[2:])]
    scope.node(_MODES[mode], inputs, [scope.define_images(out)], _OPTIONS[mode], **fields)


ROWS: Final[dict[str, Row]] = {
    "AveragePool": _pool("AVERAGE_POOL_2D"),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global_pool("MEAN"),
    "GlobalMaxPool": _global_pool("REDUCE_MAX"),
    "MaxPool": _pool("MAX_POOL_2D"),
    "Resize": _resize,
}
