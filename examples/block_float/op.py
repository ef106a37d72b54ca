"""BlockFloat: round to block floating point in the forward pass, let the gradient straight through.

Neighbours along the last axis form blocks. A block has one exponent, that of its largest magnitude, and each number
an integer of few bits (Wilkinson, Rounding Errors in Algebraic Processes, 1963; the OCP Microscaling formats, 2023,
are of this kind). Processors for neural networks multiply such blocks by integer units. What such a unit would see is
one operator here, so that training, the ONNX file and the `.bin` all hold the same rounding.
"""

import numpy as np

import opforge as of


def _reference(x, *, block, bits):
    columns = x.shape[-1] if x.ndim else 1
    rows = x.reshape(x.size // max(columns, 1), columns)
    y = np.empty_like(rows)
    largest = 2 ** (bits - 1) - 1
    for begin in range(0, rows.shape[1], block):
        part = rows[:, begin : begin + block]
        finite = np.where(np.isfinite(part), part, 0)
        exponent = np.frexp(np.abs(finite).max(axis=1, keepdims=True))[1]  # the magnitude is below 2 ** exponent
        step = np.ldexp(1.0, np.maximum(exponent - (bits - 1), -1074))
        rounded = np.clip(np.round(finite / step), -largest, largest) * step
        y[:, begin : begin + block] = np.where(np.isfinite(part), rounded, part)
    return y.reshape(x.shape)


block_float = of.kernel(
    "examples.quant::BlockFloat",
    "(x: T[*S]; block: int = 16, bits: int = 8) -> (y: T[*S])",
    types={"T": of.floating},
    sources=["cpu.cc", "cuda.cu"],
    reference=_reference,
    gradient=lambda inputs, outputs, grads, attrs: {"x": grads.y},
    doc="x in integers of `bits` bits, sign included, that share an exponent in each block along the last axis.",
)
