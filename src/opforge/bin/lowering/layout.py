"""Layouts: blocked channels spread from convolutions to their neighbours; conversions stand only at the borders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opforge.bin.lowering import channels, nhwc, side_by_side
from opforge.bin.lowering.borders import Borders
from opforge.bin.lowering.convolution import halo_of
from opforge.bin.lowering.fuse import blocked_operand, same_shape
from opforge.bin.lowering.graph import FLOAT, Graph, Node, Value
from opforge.bin.program import Layout

__all__ = ["assign_layouts"]


def assign_layouts(graph: Graph) -> None:
    """Choose layouts, insert the conversions and size the halos."""
    side_by_side.assign(graph)
    for k, node in enumerate(graph.nodes):
        rule = _RULES.get(node.op) if node.domain in ("", "opforge") else None
        made = rule(node) if rule is not None else None
        if made is not None:
            made.output.layout = Layout("c16")
            made.output.producer = made
            graph.nodes[k] = made
    channels.drop_unread(graph)
    _convert(graph)
    _plain_results(graph)
    nhwc.absorb_transposes(graph)
    channels.drop_unread(graph)
    channels.parts_in_place(graph)
    _halos(graph)


# -- which nodes follow their input into blocks ------------------------------------------------------------------


def _blocked_input(node: Node) -> Value | None:
    x = node.inputs[0] if node.inputs else None
    return x if x is not None and x.is_blocked and x.dtype == FLOAT else None


def _pool(node: Node) -> Node | None:
    a, x = node.attributes, _blocked_input(node)
    if x is None or len(node.outputs) != 1 or a.get("auto_pad", "NOTSET") != "NOTSET" or a.get("storage_order", 0):
        return None
    attributes: dict[str, Any] = {
        "mode": "max" if node.op == "MaxPool" else "average",
        "kernel_shape": a["kernel_shape"],
        "strides": list(a.get("strides") or [1, 1]),
        "dilations": list(a.get("dilations") or [1, 1]),
        "pads": list(a.get("pads") or [0, 0, 0, 0]),
        "ceil_mode": a.get("ceil_mode", 0),
        "count_include_pad": a.get("count_include_pad", 0),
    }
    return Node("opforge", "Pool", 1, [x], node.outputs, attributes, node.origin)


def _global_average(node: Node) -> Node | None:
    x = _blocked_input(node)
    if x is None or node.domain != "":
        return None
    return Node("opforge", "GlobalAveragePool", 1, [x], node.outputs, {}, node.origin)


def _reduce_mean(node: Node) -> Node | None:
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is None or axes.data is None or not node.attributes.get("keepdims", 1):
        return None
    return _global_average(node) if sorted(int(a) % 4 for a in axes.data.reshape(-1)) == [2, 3] else None


def _resize(node: Node) -> Node | None:
    x, a = _blocked_input(node), node.attributes
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    if (
        x is None
        or node.domain != ""
        or scales is None
        or scales.data is None
        or scales.data.size != 4
        or a.get("axes")
    ):
        return None
    floor = a.get("coordinate_transformation_mode", "half_pixel") == "asymmetric" and a.get("nearest_mode") == "floor"
    s = [float(v) for v in scales.data.reshape(-1)]
    whole = all(v.is_integer() and v >= 1 for v in s) and s[:2] == [1, 1]
    if a.get("mode", "nearest") != "nearest" or not whole or not (floor or _half_pixel_is_floor(a)):
        return None
    attributes = {"scales_h": int(s[2]), "scales_w": int(s[3]), "mode": "nearest"}
    return Node("opforge", "Resize", 1, [x], node.outputs, attributes, node.origin)


def _half_pixel_is_floor(a: dict[str, Any]) -> bool:
    """At whole scales, the nearest pixel centre is the pixel whose copy this is."""
    return a.get("coordinate_transformation_mode", "half_pixel") in ("half_pixel", "pytorch_half_pixel") and a.get(
        "nearest_mode", "round_prefer_floor"
    ) in ("round_prefer_floor", "round_prefer_ceil")


def _concat(node: Node) -> Node | None:
    inputs = [v for v in node.inputs if v is not None]
    if len(inputs) < 2 or node.attributes.get("axis") not in (1, -3) or len(inputs) != len(node.inputs):
        return None
    for v in inputs:
        if not v.is_blocked or v.dims is None or v.dims[1].constant is None:
            return None
    return Node("opforge", "ConcatChannels", 1, list(inputs), node.outputs, {}, node.origin)


def _depth_to_space(node: Node) -> Node | None:
    """Whole lanes move; with few channels the plain kernel is better."""
    x, block = _blocked_input(node), int(node.attributes.get("blocksize", 1))
    if x is None or node.domain != "" or node.attributes.get("mode", "DCR") != "DCR":
        return None
    channels = x.dims[1].constant if x.dims is not None else None
    if channels is None or channels % (8 * block * block):
        return None
    return Node("opforge", "DepthToSpace", 1, [x], node.outputs, {"blocksize": block}, node.origin)


def _formula(node: Node) -> Node | None:
    if node.domain != "opforge":
        return None
    y, inputs = node.output, [v for v in node.inputs if v is not None]
    if y.rank != 4 or y.dtype != FLOAT or any(v.dtype != FLOAT for v in inputs):
        return None
    whole = [v for v in inputs if v.is_blocked and same_shape(v, y)]
    return node if whole and all(blocked_operand(v, y) for v in inputs) else None


_RULES: dict[str, Callable[[Node], Node | None]] = {
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_average,
    "ReduceMean": _reduce_mean,
    "Resize": _resize,
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Reshape": channels.shuffle,
    "Formula": _formula,
}

# -- conversions at the borders ------------------------------------------------------------------------------------


def _wants_blocked(node: Node, index: int) -> bool | None:
    """Tell which layout a node wants for an input; None = as it comes (constants)."""
    value = node.inputs[index]
    if value is None or value.data is not None:
        return None
    if node.domain != "opforge" or not node.gives_blocks or node.op == "Reorder":
        return node.is_made("Reorder") and value.is_blocked
    return not (node.op == "Conv" and index == 0 and node.attributes["algorithm"] == "first")


def _convert(graph: Graph) -> None:
    borders = Borders()
    for node in graph.nodes:
        for k, value in enumerate(node.inputs):
            wants = _wants_blocked(node, k)
            if value is not None and wants is not None and wants != value.is_blocked:
                node.inputs[k] = borders.converted(value, "c16" if wants else "plain")
            elif value is not None and value.data is not None and node.gives_blocks and k >= 1:
                node.inputs[k] = _channel_vector(node, k, value)
        borders.nodes.append(node)
    borders.finish(graph, "c16")


def _plain_results(graph: Graph) -> None:
    """Let a transposed convolution of few channels write the plain tensor that its only reader makes of it."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                readers.setdefault(value, []).append(node)
    gone: set[int] = set()
    for node in graph.nodes:
        if not node.is_made("ConvTranspose") or node.attributes["channels_out"] > 4 or len(node.inputs) > 3:
            continue
        after = readers.get(node.output, [])
        if len(after) == 1 and after[0].is_made("Reorder") and not after[0].output.is_blocked:
            gone.add(id(after[0]))
            node.outputs = [after[0].output]
            node.output.producer = node
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]


def _channel_vector(node: Node, index: int, value: Value) -> Value:
    """A constant beside blocked values is given as [C, 1, 1]."""
    trailing = index >= (4 if node.op == "Conv" else 3 if node.op == "ConvTranspose" else 0)
    if not trailing or value.data is None or value.packing or value.data.size == 1 or value.data.ndim != 4:
        return value
    return Value(value.name, value.dtype, value.dims[1:] if value.dims else None, np.ascontiguousarray(value.data[0]))


# -- halos -----------------------------------------------------------------------------------------------------------


def _halos(graph: Graph) -> None:
    """Give every blocked value the zeros that its readers want; tensors that are combined share one frame."""
    leader: dict[Value, Value] = {}

    def find(value: Value) -> Value:
        while leader.get(value, value) is not value:
            value = leader[value]
        return value

    blocked = [v for v in graph.values() if v.is_blocked]
    for node in graph.nodes:
        if node.is_made("Formula", "Conv", "ConvTranspose", "Resize") and node.output.is_blocked:
            first = {"Formula": 0, "Resize": 1}.get(node.op, 3)
            for value in node.inputs[first:]:
                if value is not None and value.is_blocked and not _is_pixel(value):
                    leader[find(value)] = find(node.output)
    halo: dict[Value, tuple[int, ...]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value.is_blocked:
                top = find(value)
                wanted = halo_of(node, value)
                halo[top] = tuple(max(a, b) for a, b in zip(halo.get(top, (0, 0, 0, 0)), wanted, strict=True))
    for value in blocked:
        t, left, b, r = halo.get(find(value), (0, 0, 0, 0))
        value.layout = Layout("c16", (t, left, b, r))


def _is_pixel(value: Value) -> bool:
    return value.dims is not None and value.dims[2] == 1 and value.dims[3] == 1
