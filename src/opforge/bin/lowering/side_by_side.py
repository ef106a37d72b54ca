"""Images of quantised networks: channels of a pixel side by side (layouts nhwc and nhwc16) from node to node."""

from __future__ import annotations

from opforge.bin.lowering.borders import Borders
from opforge.bin.lowering.fuse import same_shape
from opforge.bin.lowering.graph import FLOAT, Graph, Node, Value
from opforge.bin.lowering.quantised_values import BYTES
from opforge.bin.program import Layout

__all__ = ["assign"]

LANES = 16
"""Channels to which a pixel of nhwc16 is filled up."""

WRITES = ("IntegerConv", "IntegerPool")
"""Nodes that make such images."""
FOLLOWS = ("IntegerAdd", "IntegerMul", "IntegerTable", "ConcatChannels")
"""Nodes that keep the layout of what they read."""


def assign(graph: Graph) -> None:
    """Choose the layouts of bytes and insert the conversions at their borders."""
    for k, node in enumerate(graph.nodes):
        made = _concat(node)
        if made is not None:
            graph.nodes[k] = made
    readers = graph.readers()
    for node in graph.nodes:
        if _gives(node, readers):
            node.output.layout = Layout(_kind(node.output))
    _convert(graph)


def _concat(node: Node) -> Node | None:
    """A concatenation along the channels of quantised images."""
    parts, y = [v for v in node.inputs if v is not None], node.outputs[0] if node.outputs else None
    if node.domain != "" or node.op != "Concat" or y is None or not _is_image(y) or len(parts) < 2:
        return None
    if node.attributes.get("axis") not in (1, -3) or any(not _is_image(v) or v.data is not None for v in parts):
        return None
    return Node("opforge", "ConcatChannels", 1, list(parts), node.outputs, {}, node.origin)


def _is_image(value: Value | None) -> bool:
    return value is not None and value.dtype in BYTES and value.dims is not None and len(value.dims) == 4


def _gives(node: Node, readers: dict[Value, list[Node]]) -> bool:
    if node.is_made("Formula"):
        near = any(v is not None and v.is_nhwc and same_shape(v, node.output) for v in node.inputs)
        return near and _passes(node) and _leads(node, readers)
    if node.is_made("IntegerConv") and node.output.dtype in (*BYTES, FLOAT):
        return _leads(node, readers)  # it writes planes as well, where nobody wants pixels
    if not node.outputs or not _is_image(node.outputs[0]):
        return False
    if node.is_made("IntegerPool", "ConcatChannels"):
        return True
    if node.is_made("IntegerMul", "IntegerAdd") and not _one_shape(node):
        return True
    return node.is_made(*FOLLOWS) and any(v is not None and v.is_nhwc for v in node.inputs)


def _leads(node: Node, readers: dict[Value, list[Node]], depth: int = 4) -> bool:
    """Tell whether what a node makes goes, through formulas perhaps, to nodes that read pixels."""
    after = readers.get(node.output, [])
    return any(_reads(n) or (depth > 0 and _passes(n) and _leads(n, readers, depth - 1)) for n in after)


def _passes(node: Node) -> bool:
    """Tell whether a formula can take any layout: its operands are of its shape, numbers, or numbers per channel."""
    if not node.is_made("Formula") or node.output.rank != 4:
        return False
    whole = _kind(node.output) == "nhwc"
    return all(v is not None and (_stays(v, whole) or _follows(v, node.output)) for v in node.inputs)


def _stays(value: Value, whole: bool) -> bool:
    """Tell whether a constant lies the same way in planes and in pixels."""
    if value.data is None or value.data.ndim > 4:
        return False
    shape = value.data.shape
    return value.data.size == 1 or (whole and len(shape) >= 3 and shape[-2:] == (1, 1))


def _follows(value: Value, y: Value) -> bool:
    return value.data is None and value.rank == 4 and same_shape(value, y)


def _one_shape(node: Node) -> bool:
    a, b = node.inputs[:2]
    return a is not None and b is not None and a.dims == b.dims


def _reads(node: Node) -> bool:
    return node.is_made(*WRITES, *FOLLOWS)


def _kind(value: Value) -> str:
    """Pixels that end within a vector are filled up, so that rows stay aligned and loops have no edges."""
    channels = value.dims[1].constant if value.dims is not None else None
    return "nhwc16" if channels is not None and channels > LANES // 2 and channels % LANES else "nhwc"


def _convert(graph: Graph) -> None:
    borders = Borders()
    for node in graph.nodes:
        for k, value in enumerate(node.inputs):
            if value is None or value.data is not None or (node.is_made("IntegerConv") and k == 0):
                continue
            pixels = bool(node.outputs) and node.outputs[0] is not None and node.outputs[0].is_nhwc
            image = _is_image(value) or (node.is_made("Formula") and value.rank == 4)
            kind = _kind(value) if pixels and image else "plain"
            if value.layout.kind != kind and (value.is_nhwc or kind != "plain"):
                node.inputs[k] = borders.converted(value, kind)
        borders.nodes.append(node)
    borders.finish(graph, "nhwc", "nhwc16")
