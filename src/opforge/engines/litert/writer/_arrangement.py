"""Operators that arrange elements anew: shapes, slices, concatenation, choice by index."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

from opforge.engines.litert._dtypes import FILE_NUMBERS
from opforge.engines.litert.writer._scope import OpenShapeError, Row, Scope, refuse
from opforge.passes import _edit

__all__ = ["ROWS"]

_LARGE: Final = 2**31 - 1


def _reshaped(scope: Scope, node: ir.Node) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze: the dimensions of the output say it all."""
    out = node.outputs[0]
    scope.reshape(scope.tensor(node.inputs[0]), scope.define(out), scope.dims(out), out)


def _reshape(scope: Scope, node: ir.Node) -> None:
    out, wanted = node.outputs[0], node.inputs[1]
    try:
        dims = scope.dims(out)
        simple = sum(d is None for d in dims) <= 1
    except OpenShapeError:
        simple = False
    if simple or _edit.array(wanted) is not None or wanted is None:
        return _reshaped(scope, node)
    # The graph computes the shape: LiteRT resizes when it knows it.
    small = scope.made(
        "CAST", [scope.tensor(wanted)], "i32", scope.dims(wanted), "CastOptions", inDataType=4, outDataType=2
    )
    return scope.node("RESHAPE", [scope.tensor(node.inputs[0]), small], [scope.define(out)])


def _unsqueeze(scope: Scope, node: ir.Node) -> None:
    out = node.outputs[0]
    if sum(d is None for d in scope.dims(out)) <= 1:
        return _reshaped(scope, node)
    dims, value = scope.dims(node.inputs[0]), scope.tensor(node.inputs[0])  # type: ignore[arg-type]
    rank = len(scope.dims(out))
    axes = sorted(a % rank for a in scope.integers(node.inputs[1]) or [])
    for k, axis in enumerate(axes):
        dims = [*dims[:axis], 1, *dims[axis:]]
        made = scope.define(out) if k == len(axes) - 1 else scope.new(scope.dtype(out), dims)
        scope.node("EXPAND_DIMS", [value, scope.constant([axis])], [made], "ExpandDimsOptions")
        value = made
    return None


def _squeeze(scope: Scope, node: ir.Node) -> None:
    out, value = node.outputs[0], node.inputs[0]
    assert value is not None
    if sum(d is None for d in scope.dims(out)) <= 1:
        return _reshaped(scope, node)
    rank = len(scope.dims(value))
    axes = scope.integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None:
        raise OpenShapeError("axes of size 1 are not known", where=out.name)
    return scope.node(
        "SQUEEZE", [scope.tensor(value)], [scope.define(out)], "SqueezeOptions", squeezeDims=[a % rank for a in axes]
    )


def _transpose(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    rank = len(scope.dims(value))
    perm = _edit.attribute(node, "perm") or list(range(rank))[::-1]
    scope.transpose(scope.tensor(value), scope.define(out), perm)


def _concat(scope: Scope, node: ir.Node) -> None:
    out = node.outputs[0]
    values = [v for v in node.inputs if v is not None and 0 not in scope.dims(v)]
    axis = _edit.attribute(node, "axis") % len(scope.dims(out))
    fields = {"fusedActivationFunction": 0}
    if all(scope.is_images(v) for v in values):
        places = (0, 3, 1, 2)  # of batch, channel, height, width with channels last
        tensors = [scope.images(v) for v in values]
        scope.node(
            "CONCATENATION", tensors, [scope.define_images(out)], "ConcatenationOptions", axis=places[axis], **fields
        )
        return
    tensors = [scope.tensor(v) for v in values]
    scope.node("CONCATENATION", tensors, [scope.define(out)], "ConcatenationOptions", axis=axis, **fields)


def _split(scope: Scope, node: ir.Node) -> None:
    value = node.inputs[0]
    assert value is not None
    axis = _edit.attribute(node, "axis", 0) % len(scope.dims(value))
    sizes = [scope.dims(out)[axis] for out in node.outputs]
    if any(size is None for size in sizes):
        raise OpenShapeError("the sizes of the parts are not known", where=node.outputs[0].name)
    outs = [scope.define(out) for out in node.outputs]
    scope.node(
        "SPLIT_V",
        [scope.tensor(value), scope.constant([s or 0 for s in sizes]), scope.constant(np.array(axis, np.int32))],
        outs,
        "SplitVOptions",
        numSplits=len(outs),
    )


def _slice(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    dims = scope.dims(value)
    rank = len(dims)
    starts, ends = scope.integers(node.inputs[1]) or [], scope.integers(node.inputs[2]) or []
    axes = scope.integers(node.inputs[3]) if len(node.inputs) > 3 else None
    steps = scope.integers(node.inputs[4]) if len(node.inputs) > 4 else None
    begin, end, stride = [0] * rank, [_LARGE] * rank, [1] * rank
    begin_mask, end_mask = 0, (1 << rank) - 1
    for k, axis in enumerate(a % rank for a in (axes if axes is not None else range(len(starts)))):
        step = steps[k] if steps is not None else 1
        begin[axis], end[axis], stride[axis] = (max(min(v, _LARGE), -_LARGE) for v in (starts[k], ends[k], step))
        size = dims[axis]
        to_the_end = ends[k] >= _LARGE if step > 0 else ends[k] <= -_LARGE or (size is not None and ends[k] < -size)
        if not to_the_end:
            end_mask &= ~(1 << axis)
        if step < 0 and starts[k] >= _LARGE:
            begin_mask |= 1 << axis
    inputs = [scope.tensor(value), *(scope.constant(v) for v in (begin, end, stride))]
    scope.node(
        "STRIDED_SLICE",
        inputs,
        [scope.define(out)],
        "StridedSliceOptions",
        beginMask=begin_mask,
        endMask=end_mask,
        ellipsisMask=0,
        newAxisMask=0,
        shrinkAxisMask=0,
    )


def _indices(scope: Scope, value: ir.Value, size: int | None) -> int:
    """Return indices without negative ones, where they are constants; LiteRT refuses those when it runs."""
    data = _edit.array(value)
    if data is None or not (data < 0).any():
        return scope.tensor(value)
    if size is None:
        raise OpenShapeError("negative indices into an axis of unknown size", where=value.name)
    return scope.constant(np.where(data < 0, data + size, data))


def _gather(scope: Scope, node: ir.Node) -> None:
    value, indices = node.inputs[0], node.inputs[1]
    assert value is not None and indices is not None
    dims = scope.dims(value)
    axis = _edit.attribute(node, "axis", 0) % len(dims)
    inputs = [scope.tensor(value), _indices(scope, indices, dims[axis])]
    scope.node("GATHER", inputs, [scope.define(node.outputs[0])], "GatherOptions", axis=axis, batchDims=0)


def _gather_nd(scope: Scope, node: ir.Node) -> None:
    if _edit.attribute(node, "batch_dims", 0):
        raise refuse(node, "LiteRT's GATHER_ND has no batch dimensions")
    scope.node("GATHER_ND", [scope.tensor(v) for v in node.inputs], [scope.define(node.outputs[0])], "GatherNdOptions")


def _expand(scope: Scope, node: ir.Node) -> None:
    out = node.outputs[0]
    shape = scope.constant(scope.known(out))
    scope.node("BROADCAST_TO", [scope.tensor(node.inputs[0]), shape], [scope.define(out)], "BroadcastToOptions")


def _tile(scope: Scope, node: ir.Node) -> None:
    times = scope.constant(scope.integers(node.inputs[1]) or [])
    scope.node("TILE", [scope.tensor(node.inputs[0]), times], [scope.define(node.outputs[0])], "TileOptions")


def _pad(scope: Scope, node: ir.Node) -> None:
    value = node.inputs[0]
    assert value is not None
    rank, mode = len(scope.dims(value)), _edit.attribute(node, "mode", "constant")
    given = scope.integers(node.inputs[1]) or []
    axes = scope.integers(node.inputs[3]) if len(node.inputs) > 3 else None
    pads = np.zeros((rank, 2), np.int32)
    for k, axis in enumerate(a % rank for a in (axes if axes is not None else range(rank))):
        pads[axis] = given[k], given[k + len(given) // 2]
    if (pads < 0).any() or mode not in ("constant", "reflect"):
        raise refuse(node, "LiteRT has no such padding", "negative pads" if (pads < 0).any() else f"mode {mode}")
    tensors, out = [scope.tensor(value), scope.constant(pads)], scope.define(node.outputs[0])
    if mode == "reflect":
        return scope.node("MIRROR_PAD", tensors, [out], "MirrorPadOptions", mode=0)
    fill = node.inputs[2] if len(node.inputs) > 2 else None
    number = 0.0 if fill is None else _edit.scalar(fill)
    if number is None:
        raise refuse(node, "a fill that is computed cannot be written")
    return scope.node("PADV2", [*tensors, scope.scalar(number, scope.dtype(value))], [out], "PadV2Options")


def _shape(scope: Scope, node: ir.Node) -> None:
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    rank = len(scope.dims(value))
    start, end = _edit.attribute(node, "start", 0), _edit.attribute(node, "end", rank)
    first, last = (min(max(v + rank if v < 0 else v, 0), rank) for v in (start, end))
    fields = {"outType": FILE_NUMBERS["i64"]}
    if (first, last) == (0, rank):
        return scope.node("SHAPE", [scope.tensor(value)], [scope.define(out)], "ShapeOptions", **fields)
    whole = scope.made("SHAPE", [scope.tensor(value)], "i64", [rank], "ShapeOptions", **fields)
    cut = [whole, scope.constant([first]), scope.constant([max(last, first)]), scope.constant([1])]
    return scope.node("STRIDED_SLICE", cut, [scope.define(out)], "StridedSliceOptions")


def _constant_of_shape(scope: Scope, node: ir.Node) -> None:
    out = node.outputs[0]
    given = _edit.attribute(node, "value")
    number = 0.0 if given is None else float(given.numpy().reshape(-1)[0])
    fill = scope.scalar(number, scope.dtype(out))
    scope.node("FILL", [scope.constant(scope.known(out)), fill], [scope.define(out)], "FillOptions")


def _cumsum(scope: Scope, node: ir.Node) -> None:
    value, axis = node.inputs[0], scope.integers(node.inputs[1]) or [0]
    fields = {key: bool(_edit.attribute(node, key, 0)) for key in ("exclusive", "reverse")}
    place = scope.constant(np.array(axis[0], np.int32))
    scope.node("CUMSUM", [scope.tensor(value), place], [scope.define(node.outputs[0])], "CumsumOptions", **fields)


def _depth_to_space(scope: Scope, node: ir.Node) -> None:
    size = _edit.attribute(node, "blocksize")
    if _edit.attribute(node, "mode", "DCR") != "DCR":
        raise refuse(node, "LiteRT has this order of channels only", "mode CRD")
    scope.node(
        "DEPTH_TO_SPACE",
        [scope.images(node.inputs[0])],
        [scope.define_images(node.outputs[0])],
        "DepthToSpaceOptions",
        blockSize=size,
    )


def _space_to_depth(scope: Scope, node: ir.Node) -> None:
    if _edit.attribute(node, "mode", "DCR") != "DCR":
        raise refuse(node, "LiteRT has this order of channels only", "mode CRD")
    scope.node(
        "SPACE_TO_DEPTH",
        [scope.images(node.inputs[0])],
        [scope.define_images(node.outputs[0])],
        "SpaceToDepthOptions",
        blockSize=_edit.attribute(node, "blocksize"),
    )


def _range(scope: Scope, node: ir.Node) -> None:
    scope.node("RANGE", [scope.tensor(v) for v in node.inputs], [scope.define(node.outputs[0])], "RangeOptions")


ROWS: Final[dict[str, Row]] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumsum,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _reshaped,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
