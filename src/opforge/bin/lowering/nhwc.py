"""Models with channels last: their transposes at the border become part of the conversion to and from blocks."""

from __future__ import annotations

from opforge.bin.lowering.graph import Graph, Node, Value

__all__ = ["absorb_transposes"]

TO_NCHW, TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


def absorb_transposes(graph: Graph) -> None:
    """Let Reorder and the first convolution read, and Reorder write, [N, H, W, C].

    A transpose that others read as well stays for them.
    """
    for k, node in enumerate(graph.nodes):
        if node.is_made("Reorder") and node.gives_blocks:
            source = _behind(node.inputs[0], TO_NCHW)
            if source is not None:
                node.inputs[0], node.attributes["plain"] = source, "nhwc"
        elif node.is_made("Conv") and node.attributes["algorithm"] == "first":
            source = _behind(node.inputs[0], TO_NCHW)
            if source is not None:
                node.inputs[0], node.attributes["input_layout"] = source, "nhwc"
        elif _swaps(node, TO_NHWC) and node.inputs[0] is not None:
            before = node.inputs[0].producer
            x = before.inputs[0] if before is not None and before.is_made("Reorder") else None
            if x is not None and x.is_blocked:
                graph.nodes[k] = Node("opforge", "Reorder", 1, [x], node.outputs, {"plain": "nhwc"}, node.origin)


def _swaps(node: Node, order: list[int]) -> bool:
    return node.domain == "" and node.op == "Transpose" and list(node.attributes.get("perm") or []) == order


def _behind(value: Value | None, order: list[int]) -> Value | None:
    """Return what a transpose in this order was made of."""
    node = value.producer if value is not None else None
    return node.inputs[0] if node is not None and _swaps(node, order) else None
