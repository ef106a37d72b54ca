"""Weights that lie in the file, and in memory, as f16 or bf16 and are multiplied as f32.

In a model of half precision these are the model's own weights, so nothing changes but their size. Where the caller
asks for a precision, weights are rounded to it, and the report says how far they moved; with bf16, products may
round what they are multiplied by as well.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from opforge.bin.lowering.graph import FLOAT, Graph, Value

__all__ = ["PRECISIONS", "is_half", "narrow_weights"]

PRECISIONS = ("model", "f16", "bf16")
TYPES: dict[str, tuple[int, Any]] = {"f16": (10, np.float16), "bf16": (16, ml_dtypes.bfloat16)}
READERS = ("MatMul", "Conv", "LSTM", "GRU", "RNN")
PACKINGS = ("matmul16", "conv16", "first16", "depthwise16")
"""Nodes, and packings of their weights, that half types serve; Winograd's weights, transformed, stay f32."""
SMALLEST = 4096
"""Elements below which a narrow weight saves nothing that anybody notices."""
ROUNDED = {"bf16": ("MatMul",)}
"""Nodes that may round their other operand to the precision too: what processors multiply as it is."""

Array = NDArray[Any]


def narrow_weights(graph: Graph, precision: str) -> list[str]:
    """Store weights in half the bytes.

    Args:
        graph: the compiler's graph; the nodes get other weights.
        precision: "model" narrows where every element keeps its value, "f16" and "bf16" round.

    Returns:
        Lines for the report: what was rounded and by how much, and what would overflow.
    """
    made: dict[Value, Value | None] = {}
    moved: list[tuple[Array, Array]] = []
    refused: list[str] = []
    for node in (node for inner in graph.walk() for node in inner.nodes):
        for k, value in enumerate(node.inputs if node.is_made(*READERS) else []):
            if value is None or value.packing not in PACKINGS or value.data is None or value.dtype != FLOAT:
                continue
            if value.data.size < SMALLEST:
                continue
            if value not in made:
                made[value] = _exact(value) if precision == "model" else _rounded(value, precision, moved, refused)
            if (narrow := made[value]) is not None:
                node.inputs[k] = narrow
                if node.op in ROUNDED.get(precision, ()):
                    node.attributes["bf16_operands"] = 1
    lines = [_summary(precision, moved)] if moved else []
    if precision != "model" and not moved and not refused:
        lines = [f"weights stay as they are: no product of f32 has {SMALLEST} of them that {precision} could hold"]
    return lines + [f"kept f32, {precision} would overflow: {name}" for name in refused]


def _as(value: Value, precision: str) -> tuple[Value, Array]:
    dtype, kind = TYPES[precision]
    assert value.data is not None
    with np.errstate(over="ignore"):
        data = value.data.astype(kind)
    return Value(value.name, dtype, value.dims, data, value.layout, value.packing), data.astype(np.float32)


def is_half(data: Array) -> bool:
    """Tell whether a half type holds every element as it is."""
    with np.errstate(over="ignore"):
        return any(np.array_equal(data.astype(kind).astype(np.float32), data) for _, kind in TYPES.values())


def _exact(value: Value) -> Value | None:
    """Return the weights in a half type that holds every element as it is."""
    assert value.data is not None
    for precision in TYPES:
        narrow, back = _as(value, precision)
        if np.array_equal(back, value.data):  # NaN payloads may differ, so a weight with NaN stays
            return narrow
    return None


def _rounded(value: Value, precision: str, moved: list[tuple[Array, Array]], refused: list[str]) -> Value | None:
    assert value.data is not None
    narrow, back = _as(value, precision)
    finite = np.isfinite(value.data)
    if not np.array_equal(np.isfinite(back), finite):
        refused.append(value.name)
        return None
    moved.append((value.data, back) if finite.all() else (value.data[finite], back[finite]))
    return narrow


def _summary(precision: str, moved: list[tuple[Array, Array]]) -> str:
    size = sum(a.nbytes for a, _ in moved)
    worst = max(float(np.abs(a - b).max(initial=0) / max(float(np.abs(a).max(initial=0)), 1e-30)) for a, b in moved)
    square = sum(float(np.square(a.astype(np.float64) - b).sum()) for a, b in moved)
    norm = sum(float(np.square(a.astype(np.float64)).sum()) for a, _ in moved)
    return (
        f"weights f32 -> {precision}: {len(moved)} tensors, {size / 1e6:.2f} MB -> {size / 2e6:.2f} MB, "
        f"error {worst:.1e} of a tensor's largest element, {np.sqrt(square / max(norm, 1e-300)):.1e} root mean square"
    )
