"""How nodes of older opsets are written in newer ones: (operator, opset that changed it) -> rewrite in place.

Changes that only widen types or add attributes with a neutral default need no row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.errors import UnsupportedError
from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["RULES", "Rule"]

Rule = Callable[[ir.Node], None]


def _drop(node: ir.Node, *names: str) -> None:
    for name in names:
        node.attributes.pop(name, None)


def _set_input(node: ir.Node, index: int, data: Any) -> None:  # noqa: ANN401 - anything NumPy takes
    assert node.graph is not None
    if len(node.inputs) <= index:
        node.resize_inputs(index + 1)
    value = _edit.add_constant(_main(node), np.asarray(data), f"{node.outputs[0].name}__{index}")
    node.replace_input_with(index, value)


def _main(node: ir.Node) -> ir.Graph:
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    return graph


def _attribute_to_input(name: str, index: int = 1) -> Rule:
    def rule(node: ir.Node) -> None:
        value = _edit.attribute(node, name)
        _drop(node, name)
        if value is not None:
            _set_input(node, index, np.array(value, np.int64))

    return rule


def _np_dtype(node: ir.Node) -> np.dtype[Any]:
    x = node.inputs[0]
    return x.dtype.numpy() if x is not None and x.dtype is not None else np.dtype(np.float32)


def _clip(node: ir.Node) -> None:
    low, high = _edit.attribute(node, "min"), _edit.attribute(node, "max")
    _drop(node, "min", "max")
    for index, bound in ((1, low), (2, high)):
        if bound is not None:
            _set_input(node, index, np.array(bound, _np_dtype(node)))


def _slice(node: ir.Node) -> None:
    starts, ends = _edit.attribute(node, "starts"), _edit.attribute(node, "ends")
    axes = _edit.attribute(node, "axes") or list(range(len(starts)))
    _drop(node, "starts", "ends", "axes")
    for index, value in enumerate((starts, ends, axes), start=1):
        _set_input(node, index, np.array(value, np.int64))


def _pad(node: ir.Node) -> None:
    pads, value = _edit.attribute(node, "pads"), _edit.attribute(node, "value", 0.0)
    _drop(node, "pads", "value")
    _set_input(node, 1, np.array(pads, np.int64))
    if _edit.attribute(node, "mode", "constant") == "constant":
        _set_input(node, 2, np.array(value, _np_dtype(node)))


def _top_k(node: ir.Node) -> None:
    k = _edit.attribute(node, "k")
    _drop(node, "k")
    _set_input(node, 1, np.array([k], np.int64))


def _dropout(node: ir.Node) -> None:
    _drop(node, "ratio")


def _batch_norm(node: ir.Node) -> None:
    if _edit.attribute(node, "spatial", 1) != 1:
        raise UnsupportedError(
            "BatchNormalization with spatial=0 has no meaning in newer opsets", where=f"node {node.name!r}"
        )
    _drop(node, "spatial")
    if len(node.outputs) > 1:
        node.resize_outputs(1)


def _softmax(node: ir.Node) -> None:
    """Before opset 13 the input is flattened to two axes at ``axis`` (default 1)."""
    x, dims = node.inputs[0], dims_of(node.inputs[0])
    if x is None or dims is None:
        raise UnsupportedError(
            "the rank of the input must be known to upgrade it", where=f"node {node.name!r} ({node.op_type})"
        )
    axis = int(_edit.attribute(node, "axis", 1))
    axis += len(dims) if axis < 0 else 0
    node.attributes["axis"] = ir.AttrInt64("axis", -1)
    if axis == len(dims) - 1 or all(d == 1 for d in dims[axis + 1 :]):
        node.attributes["axis"] = ir.AttrInt64("axis", axis)
        return
    graph = _main(node)
    flat = ir.Node("", "Flatten", [x], [ir.AttrInt64("axis", axis)], num_outputs=1)
    shape = ir.Node("", "Shape", [x], num_outputs=1)
    graph.insert_before(node, [flat, shape])
    node.replace_input_with(0, flat.outputs[0])
    old = node.outputs[0]
    back = ir.Node("", "Reshape", [old, shape.outputs[0]], num_outputs=1)
    graph.insert_after(node, back)
    result = back.outputs[0]
    result.type = old.type
    for user, index in list(old.uses()):
        if user is not back:
            user.replace_input_with(index, result)
    for k, output in enumerate(graph.outputs):
        if output is old:
            result.name, old.name = old.name, f"{old.name}__flat"
            graph.outputs[k] = result


def _split(node: ir.Node) -> None:
    if len(node.inputs) < 2 or node.inputs[1] is None:
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))


def _upsample(node: ir.Node) -> None:
    scales = _edit.attribute(node, "scales")
    mode = _edit.attribute(node, "mode", "nearest")
    _drop(node, "scales", "mode", "height_scale", "width_scale")
    given = node.inputs[1] if len(node.inputs) > 1 else None
    node.resize_inputs(3)
    node.replace_input_with(1, None)
    if scales is not None:
        _set_input(node, 2, np.array(scales, np.float32))
    else:
        node.replace_input_with(2, given)
    node.op_type = "Resize"
    _resize_modes(node, mode)


def _resize(node: ir.Node) -> None:
    if len(node.inputs) > 2:
        return  # it was an Upsample a moment ago
    given = node.inputs[1]
    node.resize_inputs(3)
    node.replace_input_with(1, None)
    node.replace_input_with(2, given)
    _resize_modes(node, _edit.attribute(node, "mode", "nearest"))


def _resize_modes(node: ir.Node, mode: str) -> None:
    for name, value in (("mode", mode), ("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")):
        node.attributes[name] = ir.AttrString(name, value)


def _scatter(node: ir.Node) -> None:
    node.op_type = "ScatterElements"


def _grid_sample(node: ir.Node) -> None:
    mode = _edit.attribute(node, "mode", "bilinear")
    node.attributes["mode"] = ir.AttrString("mode", {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


def _dft(node: ir.Node) -> None:
    axis = _edit.attribute(node, "axis", 1)
    _drop(node, "axis")
    _set_input(node, 2, np.array(axis, np.int64))


def _group_norm(node: ir.Node) -> None:
    """Before opset 21 scale and bias count groups, afterwards channels."""
    dims = dims_of(node.inputs[0])
    channels = dims[1].constant if dims is not None and len(dims) > 1 else None
    for index in (1, 2):
        data = _edit.array(node.inputs[index])
        if data is None or channels is None:
            raise UnsupportedError(
                "scale and bias must be constants to upgrade it", where=f"node {node.name!r} (GroupNormalization)"
            )
        _set_input(node, index, np.repeat(data, channels // len(data)))


def _scan(node: ir.Node) -> None:
    from opforge.passes.lower_scan import lower_batched

    lower_batched(node)


RULES: dict[tuple[str, int], Rule] = {
    ("Scan", 9): _scan,
    ("Slice", 10): _slice,
    ("TopK", 10): _top_k,
    ("Upsample", 10): _upsample,
    ("BatchNormalization", 9): _batch_norm,
    ("Clip", 11): _clip,
    ("Pad", 11): _pad,
    ("Resize", 11): _resize,
    ("Scatter", 11): _scatter,
    ("Dropout", 12): _dropout,
    **dict.fromkeys([("Softmax", 13), ("LogSoftmax", 13), ("Hardmax", 13)], _softmax),
    **dict.fromkeys([("Squeeze", 13), ("Unsqueeze", 13), ("ReduceSum", 13)], _attribute_to_input("axes")),
    ("Split", 13): _attribute_to_input("split"),
    ("Split", 18): _split,
    **{
        (f"Reduce{kind}", 18): _attribute_to_input("axes")
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
    ("DFT", 20): _dft,
    ("GridSample", 20): _grid_sample,
    ("GroupNormalization", 21): _group_norm,
}
"""Rows apply in the order of opsets to nodes of models that are older."""
