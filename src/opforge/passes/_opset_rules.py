"""How nodes of older opsets are written in newer ones: (operator, opset that changed it) -> rule.

A rule gives its node the form of the opset that it names, and later rows carry that on; nodes that it adds are new.
Changes that need no row stand in ``_opset_neutral`` with the reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._opset_early import EARLY
from opforge.passes._opset_normalization import batch_norm_outputs, group_norm
from opforge.passes._upgrade import Rule, Writer, constant, dims, drop, refuse, rename_output, set_input, take_attribute
from opforge.passes.lower_scan import lower_batched

__all__ = ["RULES", "Rule"]


def _attribute_to_input(name: str, index: int = 1) -> Rule:
    def rule(node: ir.Node) -> None:
        value = take_attribute(node, name)
        if value is not None:
            set_input(node, index, np.array(value, np.int64))

    return rule


def _np_dtype(node: ir.Node) -> np.dtype[Any]:
    x = node.inputs[0]
    return x.dtype.numpy() if x is not None and x.dtype is not None else np.dtype(np.float32)


def _clip(node: ir.Node) -> None:
    """Before opset 11 the bounds have defaults: the ends of float32. A bound that is infinite is none."""
    end = float(np.finfo(np.float32).max)
    for index, name, default in ((1, "min", -end), (2, "max", end)):
        with np.errstate(over="ignore"):  # half types reach less far
            bound = np.array(take_attribute(node, name, default), _np_dtype(node))
        if np.isfinite(bound):
            set_input(node, index, bound)


def _slice(node: ir.Node) -> None:
    starts, ends = take_attribute(node, "starts"), take_attribute(node, "ends")
    axes = take_attribute(node, "axes") or list(range(len(starts)))
    for index, value in enumerate((starts, ends, axes), start=1):
        set_input(node, index, np.array(value, np.int64))


def _pad(node: ir.Node) -> None:
    pads, value = take_attribute(node, "pads"), take_attribute(node, "value", 0.0)
    set_input(node, 1, np.array(pads, np.int64))
    if _edit.attribute(node, "mode", "constant") == "constant":
        set_input(node, 2, np.array(value, _np_dtype(node)))


def _top_k(node: ir.Node) -> None:
    set_input(node, 1, np.array([take_attribute(node, "k")], np.int64))


def _dropout_mask(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 10 the mask has the type of the data, afterwards it is bool."""
    x = node.inputs[0]
    if len(node.outputs) < 2 or not (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return None
    if x is None or x.dtype is None:
        raise refuse(node, "the type of the input must be known to upgrade it")
    write = Writer(node)
    mask = write.op("Cast", node.outputs[1], after=True, to=int(x.dtype))
    rename_output(node, 1, mask)
    node.outputs[1].type = ir.TensorType(ir.DataType.BOOL)
    return write.nodes()


def _softmax(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 13 the input is flattened to two axes at ``axis`` (default 1)."""
    x, shape = node.inputs[0], dims(node)
    axis = int(take_attribute(node, "axis", 1))
    if shape is not None:
        axis += len(shape) if axis < 0 else 0
        if axis == len(shape) - 1 or (axis < len(shape) and all(d == 1 for d in shape[axis + 1 :])):
            node.attributes["axis"] = ir.AttrInt64("axis", axis)
            return None
    node.attributes["axis"] = ir.AttrInt64("axis", -1)
    write = Writer(node)
    flat = write.op("Flatten", x, axis=axis)
    size = write.op("Shape", x)
    node.replace_input_with(0, flat)
    rename_output(node, 0, write.op("Reshape", node.outputs[0], size, after=True))
    return write.nodes()


def _split(node: ir.Node) -> None:
    if len(node.inputs) < 2 or node.inputs[1] is None:
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))


def _upsample(node: ir.Node) -> None:
    node.op_type = "Resize"


def _resize(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 11 the nearest element is below when a dimension grows, and above when it shrinks."""
    x, given = node.inputs[0], node.inputs[1]
    mode = _edit.attribute(node, "mode", "nearest")
    scales = _edit.array(given)
    shrinks = scales is None or bool(np.any(scales < 1))
    grows = scales is None or bool(np.any(scales > 1))
    node.resize_inputs(3)
    node.replace_input_with(1, None)
    node.replace_input_with(2, given)
    for name, text in (("mode", mode), ("coordinate_transformation_mode", "asymmetric")):
        node.attributes[name] = ir.AttrString(name, text)
    nearest = "ceil" if shrinks and not grows else "floor"
    node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", nearest)
    if mode != "nearest" or not (shrinks and grows):
        return None
    # Both: first the dimensions that grow, then those that shrink; the nearest elements of each are independent.
    write = Writer(node)
    one = constant(node, np.float32(1), "one")
    larger = write.op("Max", given, one)
    common = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    grown = write.op("Resize", x, None, larger, nearest_mode="floor", **common)
    node.replace_input_with(0, grown)
    node.replace_input_with(2, write.op("Min", given, one))
    node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", "ceil")
    return write.nodes()


def _scatter(node: ir.Node) -> None:
    node.op_type = "ScatterElements"


def _one_hot(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 11 a negative index is out of range, afterwards it counts from the end."""
    indices, depth = node.inputs[0], node.inputs[1]
    known = _edit.array(indices)
    if known is not None and np.all(known >= 0):
        return None
    if indices is None or depth is None or indices.dtype is None:
        raise refuse(node, "the type of the indices must be known to upgrade it")
    write = Writer(node)
    zero = constant(node, np.zeros((), indices.dtype.numpy()), "zero")
    outside = write.op("Cast", write.op("Reshape", depth, constant(node, np.array([], np.int64), "scalar")), to=1)
    outside = write.op("Cast", outside, to=int(indices.dtype))
    node.replace_input_with(0, write.op("Where", write.op("Less", indices, zero), outside, indices))
    return write.nodes()


def _roi_align(node: ir.Node) -> None:
    """Half a pixel was not subtracted from the region's corners before opset 16."""
    node.attributes["coordinate_transformation_mode"] = ir.AttrString(
        "coordinate_transformation_mode", "output_half_pixel"
    )


def _grid_sample(node: ir.Node) -> None:
    mode = _edit.attribute(node, "mode", "bilinear")
    node.attributes["mode"] = ir.AttrString("mode", {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


def _dft(node: ir.Node) -> None:
    set_input(node, 2, np.array(take_attribute(node, "axis", 1), np.int64))


def _scan(node: ir.Node) -> list[ir.Node]:
    """Before opset 9 a Scan runs for each element of a batch."""
    graph, body = node.graph, node.attributes["body"].as_graph()
    assert graph is not None
    for inner in body.all_nodes():
        inner.version = inner.version if inner.version is not None else 8
    old = set(graph)
    lower_batched(node)
    made = [n for n in graph if n not in old]
    for around in (g for n in made for g in _edit.subgraphs(n)):
        for inner in around:
            inner.version = 9
    return made


RULES: dict[tuple[str, int], Rule] = {
    **EARLY,
    ("Scan", 9): _scan,
    ("Slice", 10): _slice,
    ("TopK", 10): _top_k,
    ("Upsample", 10): _upsample,
    ("Dropout", 10): _dropout_mask,
    ("Clip", 11): _clip,
    ("OneHot", 11): _one_hot,
    ("Pad", 11): _pad,
    ("Resize", 11): _resize,
    ("Scatter", 11): _scatter,
    ("Dropout", 12): lambda node: drop(node, "ratio"),
    **dict.fromkeys([("Softmax", 13), ("LogSoftmax", 13), ("Hardmax", 13)], _softmax),
    **dict.fromkeys([("Squeeze", 13), ("Unsqueeze", 13), ("ReduceSum", 13)], _attribute_to_input("axes")),
    ("Split", 13): _attribute_to_input("split"),
    ("BatchNormalization", 14): batch_norm_outputs,
    ("RoiAlign", 16): _roi_align,
    ("Split", 18): _split,
    **{
        (f"Reduce{kind}", 18): _attribute_to_input("axes")
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
    ("DFT", 20): _dft,
    ("GridSample", 20): _grid_sample,
    ("GroupNormalization", 21): group_norm,
}
"""Rows of one node apply in the order of opsets."""
