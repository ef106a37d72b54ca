"""Attention nodes in the runtime's form, and the three products before one joined into a single product."""

from __future__ import annotations

from typing import Any

import numpy as np

from opforge.bin.lowering.graph import FLOAT, Graph, Node, Value
from opforge.passes._dims import Dim

__all__ = ["join_products", "lower_attention"]

INTEGERS = frozenset({6, 7})
MASKS = frozenset({FLOAT, 9})
KNOWN = frozenset(
    """
    q_num_heads kv_num_heads scale is_causal softcap qk_matmul_output_mode softmax_precision left_window_size
    right_window_size nan_rows
    """.split()
)
"""Attributes that the runtime's node has in some form."""


def lower_attention(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    """Write ONNX's Attention as ours where its heads are known; else the runtime reads them off the shapes."""
    q, k, v, mask, past_k, past_v, lengths = (*inputs, *[None] * 7)[:7]
    if q is None or k is None or v is None or not set(attributes) <= KNOWN:
        return None
    floats = [t for t in (q, k, v, past_k, past_v) if t is not None]
    if any(t.dtype != FLOAT or t.dims is None for t in floats) or (mask is not None and mask.dtype not in MASKS):
        return None
    if lengths is not None and lengths.dtype not in INTEGERS:
        return None
    heads = _heads(q, attributes.get("q_num_heads"))
    kv_heads = _heads(k, attributes.get("kv_num_heads"))
    if heads is None or kv_heads is None:
        return None
    size, size_v = _head_size(q, heads), _head_size(v, kv_heads)
    if size is None or size_v is None:
        return None
    layout = "bshd" if q.rank == 3 else "bhsd"
    made = {
        "num_heads": heads,
        "kv_num_heads": kv_heads,
        "head_size": size,
        "head_size_v": size_v,
        "scale": float(attributes.get("scale", 0.0)),
        "causal": int(attributes.get("is_causal", 0)),
        **{f"{name}_layout": layout for name in "qkvo"},
        "o_rank": 3 if q.rank == 3 else 4,
        **{name: attributes[name] for name in _OPTIONS if name in attributes},
    }
    return Node("opforge", "Attention", 1, [q, k, v, mask, past_k, past_v, lengths], outputs, made, origin)


_OPTIONS = ("nan_rows", "softcap", "qk_matmul_output_mode", "left_window_size", "right_window_size")


def _heads(value: Value, given: int | None) -> int | None:
    if value.rank == 3:
        return given
    return value.dims[1].constant if value.dims is not None and value.rank == 4 else None


def _head_size(value: Value, heads: int) -> int | None:
    width = value.dims[-1].constant if value.dims is not None else None
    if width is None or value.rank == 4:
        return width
    return width // heads if width % heads == 0 else None


def join_products(graph: Graph) -> None:
    """Compute queries, keys and values of the same input by one product; the attention reads them at offsets."""
    readers = graph.readers()
    for node in list(graph.nodes):
        if not node.is_made("Attention") or node.attributes["q_layout"] != "bshd":
            continue
        products = [
            v.producer if v is not None and readers[v] == [node] and not v.is_output else None for v in node.inputs[:3]
        ]
        made = _joined([p for p in products if p is not None], node) if all(products) else None
        if made is None:
            continue
        first = graph.nodes.index(next(p for p in graph.nodes if p in products))
        graph.nodes = [n for n in graph.nodes if n not in products]
        graph.nodes.insert(first, made)
        widths = [p.attributes["N"] for p in products if p is not None]
        node.attributes.update(k_offset=widths[0], v_offset=widths[0] + widths[1])
        node.inputs[:3] = [made.output] * 3


def _joined(products: list[Node], node: Node) -> Node | None:
    plain = all(
        p.is_made("MatMul")
        and p.inputs[0] is products[0].inputs[0]
        and len(p.inputs) == 3
        and "activation" not in p.attributes
        for p in products
    )
    if not plain or len(set(products)) != 3:
        return None
    weights = [p.inputs[1].data if p.inputs[1] is not None else None for p in products]
    if any(w is None for w in weights):
        return None
    weight = np.concatenate([w for w in weights if w is not None], axis=1)
    bias: Value | None = None
    if any(p.inputs[2] is not None for p in products):
        parts = []
        for p in products:
            b = p.inputs[2]
            parts.append(np.zeros(p.attributes["N"], np.float32) if b is None or b.data is None else b.data)
        data = np.concatenate(parts)
        bias = Value(f"{node.output.name}__bias", FLOAT, [Dim.of(len(data))], data)
    k, n = weight.shape
    packed = Value(f"{node.output.name}__weights", FLOAT, [Dim.of(k), Dim.of(n)], weight, packing="matmul16")
    dims = products[0].output.dims
    y = Value(f"{node.output.name}__qkv", FLOAT, None if dims is None else [*dims[:-1], Dim.of(n)])
    origin = [o for p in products for o in p.origin]
    return Node("opforge", "MatMul", 1, [products[0].inputs[0], packed, bias], [y], {"K": k, "N": n}, origin)
