"""What operators of ai.onnx.ml do with their scores at the end."""

from __future__ import annotations

import onnx_ir as ir

from opforge.bin.lowering.bodies._writer import Body
from opforge.passes import _edit

__all__ = ["transformed"]

BY_NUMBER = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def transformed(b: Body, scores: str, node: ir.Node) -> str | None:
    """Append the transform that a node names; None for PROBIT, which has no form in standard operators."""
    kind = _edit.attribute(node, "post_transform", "NONE")
    kind = BY_NUMBER[kind] if isinstance(kind, int) else kind
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return b.op("Sigmoid", scores)
    if kind == "SOFTMAX":
        return b.op("Softmax", scores, axis=-1)
    if kind != "SOFTMAX_ZERO":
        return None
    # Scores of 0 stay 0 and take no part.
    zero = b.number(0.0, scores)
    none = b.op("Equal", scores, zero)
    lowest = b.number(float("-inf"), scores)
    powers = b.op("Softmax", b.op("Where", none, lowest, scores), axis=-1)
    return b.op("Where", none, zero, powers)
