"""Bodies of operators of com.microsoft that models of language models are stored with."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from opforge.bin.lowering.bodies._writer import Body
from opforge.passes import _edit

__all__ = ["BODIES"]

Array = np.ndarray[Any, Any]
STORED: dict[int, Any] = {4: ml_dtypes.uint4, 8: np.uint8}


def _matmul_nbits(b: Body, node: ir.Node) -> list[str] | None:
    """A times weights of 4 or 8 bits with a scale for each block of rows: DequantizeLinear, Transpose, MatMul."""
    k, n, bits, block = (int(_edit.attribute(node, name, 0)) for name in ("K", "N", "bits", "block_size"))
    bits = bits or 4
    packed, scales, zeros = (_edit.array(v) for v in (*node.inputs[1:4], None, None)[:3])
    ordered = len(node.inputs) > 4 and node.inputs[4] is not None
    if bits not in STORED or block < 1 or min(k, n) < 1 or packed is None or scales is None or ordered:
        return None
    groups = -(-k // block)
    if (b.has(3) and zeros is None) or scales.size != n * groups or (zeros is not None and zeros.dtype != np.uint8):
        return None
    if packed.size % n:
        return None
    codes = _codes(packed.reshape(n, -1), bits)[:, :k]
    rows = -(-groups * bits // 8)
    if codes.shape != (n, k) or (zeros is not None and zeros.size != n * rows):
        return None
    zero = np.full((n, groups), 1 << (bits - 1), np.uint8)
    if zeros is not None:
        zero = _codes(zeros.reshape(n, rows), bits)[:, :groups]
    a, half = b.inputs[0], scales.dtype != np.float32
    if half:
        a = b.cast(a, ir.DataType.FLOAT)
    kind = STORED[bits]
    given = [codes.astype(kind), scales.reshape(n, groups).astype(np.float32), zero.astype(kind)]
    weights = b.op("DequantizeLinear", *map(b.constant, given), axis=1, block_size=block)
    y = b.op("MatMul", a, b.op("Transpose", weights, perm=[1, 0]))
    if b.has(5):
        y = b.op("Add", y, b.cast(b.inputs[5], ir.DataType.FLOAT) if half else b.inputs[5])
    return [b.cast(y, ir.DataType.from_numpy(scales.dtype)) if half else y]


def _codes(data: Array, bits: int) -> Array:
    """Unpack rows of bytes, low bits first."""
    data = data.view(np.uint8)
    if bits == 8:
        return data
    return np.stack([data & 15, data >> 4], axis=-1).reshape(len(data), -1)


BODIES = {("com.microsoft", "MatMulNBits"): _matmul_nbits}
