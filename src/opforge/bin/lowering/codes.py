"""Products with weights that stay codes of 4 or 8 bits: DequantizeLinear of constants, then MatMul."""

from __future__ import annotations

from typing import Any

import numpy as np

from opforge.bin.lowering import quantised_values as q
from opforge.bin.lowering.graph import FLOAT, Node, Value
from opforge.bin.packing import pack_codes, pack_groups
from opforge.passes._dims import Dim

__all__ = ["coded_product"]

Array = np.ndarray[Any, Any]

CODES = {2: (8, 0), 3: (8, 128), 21: (4, 0), 22: (4, 8)}
"""ONNX dtype -> bits of a code, and what makes it unsigned."""
SMALLEST = 4096
"""Elements below which f32 in the file is simpler."""
GROUP = 8
"""Groups of rows that share a scale are multiples of this."""


def coded_product(node: Node) -> Node | None:
    """Make a DequantizeMatMul of a MatMul by dequantised constants, where its groups lie along the rows.

    Weights may be stored ``[N, K]`` behind a Transpose, with one scale, one per column, or one per group of rows.
    """
    if not q.is_node(node, "MatMul"):
        return None
    x, b = node.inputs[:2]
    if x is None or b is None or x.dtype != FLOAT or b.dtype != FLOAT:
        return None
    turned = q.is_node(b.producer, "Transpose")
    value = b.producer.inputs[0] if turned and b.producer is not None else b
    source = value.producer if value is not None else None
    if source is None or not q.is_node(source, "DequantizeLinear") or x.rank is None or x.rank < 2:
        return None
    read = _read(source, turned=turned)
    if read is None:
        return None
    bits, codes, scale, zero, group = read
    k, n = codes.shape
    name = source.inputs[0].name if source.inputs[0] is not None else node.output.name
    same = zero.min() == zero.max()

    def constant(suffix: str, dtype: int, data: Array) -> Value:
        return Value(f"{name}{suffix}", dtype, [Dim.of(d) for d in data.shape], data)

    inputs: list[Value | None] = [
        x,
        constant("", 2, pack_codes(codes, bits)),
        None,
        constant("__scales", FLOAT, pack_groups(scale)),
        None if same else constant("__zeros", 2, pack_groups(zero.astype(np.uint8))),
    ]
    attributes = {"K": k, "N": n, "bits": bits, "group": group, "zero": int(zero.flat[0]) if same else 0}
    return Node("opforge", "DequantizeMatMul", 1, inputs, node.outputs, attributes, [*source.origin, *node.origin])


def _read(source: Node, *, turned: bool) -> tuple[int, Array, Array, Array, int] | None:
    """Return bits, codes [K, N], scales and zero points [groups, N], and rows of a group."""
    given, scales, zeros = (q.operand(source, i) for i in range(3))
    if given is None or given.data is None or given.dtype not in CODES or scales is None or scales.data is None:
        return None
    if scales.dtype != FLOAT or given.data.ndim != 2 or given.data.size < SMALLEST:
        return None
    if (zeros is not None and zeros.data is None) or source.output.dtype != FLOAT:
        return None
    if not q.fits(source, given.data, scales.data, None if zeros is None else zeros.data):
        return None
    bits, offset = CODES[given.dtype]
    codes = (given.data.astype(np.int16) + offset).astype(np.uint8)
    axis, block = int(source.attributes.get("axis", 1)) % 2, int(source.attributes.get("block_size", 0))
    if turned:
        codes, axis = codes.T, 1 - axis
    k, n = codes.shape
    zero = np.zeros(1, np.int16) if zeros is None or zeros.data is None else zeros.data.astype(np.int16)
    zero = zero + offset
    if scales.data.size == 1:
        block = 0
    elif axis != (0 if block else 1) or (block and block < k and block % GROUP):
        return None

    def grouped(data: Array) -> Array:
        if data.size == 1:
            groups = -(-k // block) if block else 1
            return np.full((groups, n), data.reshape(-1)[0], data.dtype)
        return data.reshape(1, n) if not block else data.T if turned else data

    return bits, codes, grouped(scales.data), grouped(zero), min(block, k) if block else k
