"""Channels of blocked values: parts of a concatenation written where they will lie, and shuffles of groups."""

from __future__ import annotations

from opforge.bin.lowering.graph import Graph, Node, Value
from opforge.bin.program import Layout

__all__ = ["drop_unread", "parts_in_place", "shuffle"]

_MOVES = ("Reshape", "Transpose", "Reorder")


def shuffle(node: Node) -> Node | None:
    """[N, C, H, W] as [N, g, C/g, H, W], both channel axes swapped, and back: one move of channels."""
    swap = _only(node, "Reshape", "Transpose")
    split = _only(swap, "Transpose", "Reshape") if swap is not None else None
    x = split.inputs[0] if split is not None else None
    if swap is None or split is None or x is None or not x.is_blocked or x.dims is None:
        return None
    parts, y = split.output.dims, node.output
    if parts is None or len(parts) != 5 or list(swap.attributes.get("perm") or []) != [0, 2, 1, 3, 4]:
        return None
    groups, channels = parts[1].constant, x.dims[1].constant
    if groups is None or channels is None or y.dims != x.dims or [parts[0], *parts[3:]] != [x.dims[0], *x.dims[2:]]:
        return None
    return Node("opforge", "ShuffleChannels", 1, [x], node.outputs, {"groups": groups}, node.origin)


def _only(node: Node | None, op: str, before: str) -> Node | None:
    """Return the producer of ``node`` when both are the named standard operators."""
    if node is None or node.domain != "" or node.op != op or node.inputs[0] is None:
        return None
    producer = node.inputs[0].producer
    return producer if producer is not None and producer.domain == "" and producer.op == before else None


def drop_unread(graph: Graph) -> None:
    """Remove moves whose result nobody reads any more."""
    while True:
        read = {v for n in graph.nodes for v in n.inputs if v is not None} | set(graph.outputs)
        kept = [n for n in graph.nodes if n.op not in _MOVES or n.output in read]
        if len(kept) == len(graph.nodes):
            return
        graph.nodes = kept


def parts_in_place(graph: Graph) -> None:
    """Let the nodes before a concatenation write into its result, which then needs no node.

    Every part must be made by a node that can do so and be read by nothing else. The parts become a chain in the
    order of the schedule: each node takes the value that holds what was written so far, and gives it on in place.
    """
    readers = graph.readers()
    for concat in [n for n in graph.nodes if n.is_made("ConcatChannels")]:
        found = _parts(concat, readers)
        if found is None:
            continue
        order = {node: k for k, node in enumerate(graph.nodes)}
        total = sum(channels for _, channels, _ in found)
        so_far: Value | None = None
        for k, (node, channels, offset) in enumerate(sorted(found, key=lambda part: order[part[0]])):
            last = k == len(found) - 1
            y = concat.output
            whole = y if last else Value(f"{y.name}__{k + 1}", y.dtype, y.dims, layout=Layout(y.layout.kind))
            slot = _KEPT[node.op]
            node.inputs += [None] * (slot + 1 - len(node.inputs))
            node.inputs[slot] = so_far
            node.attributes.update(channels_total=total, channel_offset=offset)
            if node.op == "Resize":
                node.attributes["channels_in"] = channels
            node.outputs, whole.producer, so_far = [whole], node, whole
        graph.nodes.remove(concat)


def _parts(concat: Node, readers: dict[Value, list[Node]]) -> list[tuple[Node, int, int]] | None:
    """Return producer, channels and offset of each input, or None where one cannot write in place."""
    found: list[tuple[Node, int, int]] = []
    blocked = concat.output.is_blocked
    offset = 0
    for k, value in enumerate(concat.inputs):
        assert value is not None
        assert value.dims is not None
        node, channels = value.producer, value.dims[1].constant
        if channels is None or node is None or value.is_output or readers[value] != [concat]:
            return None
        if not _writes_parts(node, blocked) or (blocked and channels % 16 and k < len(concat.inputs) - 1):
            return None
        found.append((node, channels, offset))
        offset += channels
    return found


_KEPT = {"Conv": 3, "Resize": 1, "IntegerConv": 10}
"""Input with the channels that others have written."""


def _writes_parts(node: Node, blocked: bool) -> bool:
    if "channels_total" in node.attributes or "epilogue" in node.attributes:
        return False
    if not blocked:
        return node.is_made("IntegerConv")
    return (node.is_made("Conv") and not any(node.inputs[3:])) or node.is_made("Resize")
