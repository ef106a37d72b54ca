"""What operators compute: operations of one call from shapes and attributes, one row per operator.

The count follows the definition, not the algorithm: a convolution by Winograd's has as many as a direct one. A
multiply-add is two operations, any other function of a number (exp, erf, a comparison) one; conversions and what only
moves data have none. So figures of different engines and algorithms can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opforge.errors import OpforgeError
from opforge.onnx.elementwise import ROWS

__all__ = ["COPIES", "LAYOUTS", "bytes_of", "flops_of", "moves_of"]

Shape = tuple[int, ...] | None
Rule = Callable[[Sequence[Shape], Sequence[Shape], Mapping[str, Any]], int]


def _n(shape: Shape) -> int:
    if shape is None:
        raise LookupError("an absent tensor")
    return math.prod(shape)


def _per_output(count: int) -> Rule:
    return lambda x, y, a: count * _n(y[0])


def _per_input(count: int) -> Rule:
    return lambda x, y, a: count * _n(x[0])


def _matmul(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    assert x[0] is not None
    return 2 * _n(y[0]) * x[0][-1]


def _gemm(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    assert x[0] is not None
    added = _n(y[0]) if len(x) > 2 and x[2] is not None else 0
    return 2 * _n(y[0]) * x[0][0 if a.get("transA") else -1] + added


def _conv(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    assert x[1] is not None
    added = _n(y[0]) if len(x) > 2 and x[2] is not None else 0
    return 2 * _n(y[0]) * math.prod(x[1][1:]) + added


def _conv_transpose(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    assert x[1] is not None
    return 2 * _n(x[0]) * math.prod(x[1][1:])


def _pool(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    return _n(y[0]) * int(math.prod(a["kernel_shape"]))


def _recurrent(gates: int) -> Rule:
    def rule(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
        assert x[0] is not None
        steps, batch, size = x[0]
        hidden = int(a["hidden_size"])
        directions = 2 if a.get("direction") == "bidirectional" else 1
        return directions * steps * batch * gates * hidden * (2 * (size + hidden) + 5)

    return rule


def _attention(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    """Scores, softmax, and the sum over the values; keys that a mask hides count too."""
    q, k, v = x[0], x[1], x[2]
    assert q is not None and k is not None and v is not None
    heads = int(a.get("num_heads") or a.get("q_num_heads") or q[1])
    kv_heads = int(a.get("kv_num_heads") or (k[1] if len(k) == 4 else heads))
    size = int(a.get("head_size") or (q[-1] if len(q) == 4 else q[-1] // heads))
    depth = int(a.get("head_size_v") or a.get("head_size") or (v[-1] if len(v) == 4 else v[-1] // kv_heads))
    keys = _rows(k, str(a.get("k_layout", "bhsd")))
    past = x[4] if len(x) > 4 else None
    keys += past[2] if past is not None and len(past) == 4 else 0
    return q[0] * heads * _rows(q, str(a.get("q_layout", "bhsd"))) * keys * (2 * size + 2 * depth + 5)


def _rows(shape: tuple[int, ...], layout: str) -> int:
    """Queries or keys of an operand of attention."""
    return shape[1] if len(shape) == 3 else shape[{"bhsd": 2, "bshd": 1, "bhds": 3}[layout]]


def _einsum(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    left = a["equation"].replace(" ", "").partition("->")[0].split(",")
    sizes: dict[str, int] = {}
    for labels, shape in zip(left, x, strict=True):
        assert shape is not None
        if "." in labels:
            raise LookupError("an ellipsis")
        sizes.update(zip(labels, shape, strict=True))
    return (len(left) if len(left) > 1 else 1) * math.prod(sizes.values())


def _resize(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    per = {"linear": 7, "cubic": 39}.get(str(a.get("mode", "nearest")), 0)  # in two dimensions
    return per * _n(y[0])


def _normal(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    """LRN: squares and their sum over the neighbouring channels, a power, a quotient."""
    return _n(y[0]) * (2 * int(a["size"]) + 4)


def _fourier(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    """5 n log2(n), as is usual, of the signal that is transformed."""
    assert y[0] is not None
    length = y[0][int(a.get("axis", -2))]
    return round(5 * _n(y[0]) / 2 * math.log2(max(length, 2)))


def _determinant(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    assert x[0] is not None
    return round(_n(x[0]) * x[0][-1] * 2 / 3)


_ELEMENTWISE = {name: _per_output(0 if row.kind == "cast" else 1) for name, row in ROWS.items()}
_PRODUCTS: dict[str, Rule] = {
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "DeformConv": _conv,
    "ConvInteger": _conv,
    "QLinearConv": lambda x, y, a: _conv([x[0], x[3]], y, a),
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Attention": _attention,
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
}
_ROWS: dict[str, Rule] = {
    "Softmax": _per_output(5),
    "LogSoftmax": _per_output(5),
    "LayerNormalization": _per_output(8),
    "RMSNormalization": _per_output(4),
    "GroupNormalization": _per_output(8),
    "InstanceNormalization": _per_output(8),
    "BatchNormalization": _per_output(2),
    "LpNormalization": _per_output(4),
    "Gelu": _per_output(5),
    "CumSum": _per_output(1),
    "GlobalAveragePool": _per_input(1),
    "GlobalMaxPool": _per_input(1),
    "AveragePool": _pool,
    "MaxPool": _pool,
    "LpPool": lambda x, y, a: 3 * _pool(x, y, a),
    "LRN": _normal,
    "DFT": _fourier,
    "Det": _determinant,
    "Resize": _resize,
    "Upsample": _resize,
    "Hardmax": _per_input(1),
    "Col2Im": _per_input(1),
    "CumProd": _per_output(1),
    **dict.fromkeys(("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"), _per_output(1)),
    "QuantizeLinear": _per_output(3),
    "DequantizeLinear": _per_output(2),
    "DynamicQuantizeLinear": _per_input(5),
    **dict.fromkeys(
        ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ArgMax", "ArgMin", "TopK"), _per_input(1)
    ),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum"), _per_input(2)),
    "ReduceLogSumExp": _per_input(3),
}


_ACTIVATIONS = {"relu": 1, "clip": 2, "hardsigmoid": 4, "hardswish": 5, "affine_hardswish": 6}
"""Operations per element of what the compiler's nodes do behind a product."""


def _behind(x: Sequence[Shape], elements: int, a: Mapping[str, Any], added: int) -> int:
    """Count the activation, and the `added` operands from the third on (bias, residual) that are there."""
    operands = sum(shape is not None for shape in x[2 : 2 + added])
    return elements * (operands + _ACTIVATIONS.get(str(a.get("activation", "")), 0))


def _made_conv(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    """A convolution of the compiler; its output may be wider than what it writes, so attributes say what it does."""
    assert y[0] is not None
    depthwise = a.get("algorithm") == "depthwise"
    per = 1 if depthwise else int(a["channels_in"]) // int(a.get("group", 1))
    elements = y[0][0] * math.prod(y[0][2:]) * int(a["channels_out"])
    added = 1 if "channels_total" in a else 2  # of a part of a wider output the fourth input is the rest
    return 2 * elements * int(math.prod(a["kernel_shape"])) * per + _behind(x, elements, a, added)


def _made_transpose(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    return 2 * _n(x[0]) * int(a["channels_out"]) * int(math.prod(a["kernel_shape"]))


def _made_product(x: Sequence[Shape], y: Sequence[Shape], a: Mapping[str, Any]) -> int:
    return 2 * _n(y[0]) * int(a["K"]) + _behind(x, _n(y[0]), a, 1)


_MADE: dict[str, Rule] = {
    "MatMul": _made_product,
    "DequantizeMatMul": _made_product,
    "IntegerMatMul": _matmul,
    "BatchMatMul": _matmul,
    "Conv": _made_conv,
    "ConvTranspose": _made_transpose,
    "IntegerConv": _conv,
    "Attention": _attention,
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    "Pool": _pool,
    "IntegerPool": _pool,
    "GlobalAveragePool": _per_input(1),
    "Resize": lambda x, y, a: 0,
    "IntegerAdd": _per_output(4),
    "IntegerMul": _per_output(4),
    "IntegerTable": _per_output(1),
    "Formula": lambda x, y, a: 0,  # its bytecode is counted
}

LAYOUTS = frozenset({"opforge::Reorder", "ReorderInput", "ReorderOutput", "Reorder"})
"""Nodes that only change how data lie, by the names that engines give them."""
COPIES = frozenset(
    {
        "opforge::ConcatChannels", "opforge::DepthToSpace", "opforge::ShuffleChannels",
        "Transpose", "Concat", "Slice", "Split", "Expand", "Tile", "Pad", "Gather", "GatherElements", "GatherND",
        "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "DepthToSpace", "SpaceToDepth", "Scatter",
        "ScatterElements", "ScatterND", "Cast", "ConstantOfShape", "Shape", "Size", "EyeLike", "OneHot", "Compress",
        "ReverseSequence", "Where", "MemcpyFromHost", "MemcpyToHost", "Range", "Constant", "CastLike", "NonZero",
        "Trilu", "BitCast", "Dropout", "TensorScatter", "MaxUnpool",
    }
)  # fmt: skip
"""Nodes that only move data, or convert their type on the way."""

_PARTS = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Operators that read of their first input what they write."""

_NOTHING = frozenset({"If", "Loop", "Scan"})


def moves_of(operator: str) -> str:
    """Tell whether an operator only moves data ("copy") or changes a layout ("layout"); else ""."""
    name = operator.rpartition("::")[2] if not operator.startswith("opforge::") else operator
    return "layout" if operator in LAYOUTS or name in LAYOUTS else "copy" if name in COPIES else ""


def bytes_of(op: str, inputs: Sequence[int], outputs: Sequence[int]) -> int:
    """Count what a call reads and writes from the sizes of its inputs and outputs."""
    written = sum(outputs)
    if op in _PARTS and inputs:
        return min(inputs[0], written) + sum(inputs[1:]) + written
    return sum(inputs) + written


def flops_of(
    domain: str, op: str, inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: Mapping[str, Any]
) -> int | None:
    """Count the operations of one call; None where the operator or its shapes are unknown.

    Args:
        domain: "" or "ai.onnx" for ONNX's operators, "opforge" for the compiler's.
        op: name of the operator.
        inputs: shapes, None for absent ones.
        outputs: shapes.
        attributes: as the node has them; bytecode of an epilogue or formula is counted per element of the output.
    """
    if op in _NOTHING and domain in ("", "ai.onnx"):
        return 0
    made = domain == "opforge"
    label = f"opforge::{op}" if made else op
    rule = _MADE.get(op) if made else None
    if domain in ("", "ai.onnx", "com.microsoft"):
        rule = _PRODUCTS.get(op) or _ROWS.get(op) or _ELEMENTWISE.get(op)
    if rule is None:
        known = domain in ("", "ai.onnx", "opforge") and moves_of(label) != ""
        return 0 if known else None
    try:
        count = rule(inputs, outputs, attributes)
        return count + sum(_bytecode(b) for b in attributes.values() if isinstance(b, bytes)) * _n(outputs[0])
    except (LookupError, AssertionError, TypeError, ValueError, ZeroDivisionError, OpforgeError):
        return None


_PER_INSTRUCTION = {
    "fma": 2,
    "fnma": 2,
    **dict.fromkeys(("cast", "round_half", "round_f16", "round_bf16", "select"), 0),
}


def _bytecode(blob: bytes) -> int:
    """Count the operations of a formula per element."""
    from opforge.expr.blob import decode

    return sum(_PER_INSTRUCTION.get(instruction.op, 1) for instruction in decode(blob).instructions)
