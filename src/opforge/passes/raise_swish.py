"""x*sigmoid(a*x) becomes Swish, x*tanh(softplus(x)) becomes Mish."""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._match import keeps_rank, producer, product

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "raise_swish"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _alpha(gate: ir.Value, x: ir.Value) -> float | None:
    node = producer(gate, "Sigmoid")
    if node is None or node.inputs[0] is None:
        return None
    if node.inputs[0] is x:
        return 1.0
    scaled = producer(node.inputs[0], "Mul", "Div")
    found = product(scaled) if scaled is not None else None
    return found.factor if found is not None and found.values == [x] else None


def _is_mish(gate: ir.Value, x: ir.Value) -> bool:
    tanh = producer(gate, "Tanh")
    soft = producer(tanh.inputs[0], "Softplus") if tanh is not None else None
    return soft is not None and soft.inputs[0] is x


def call(model: ir.Model) -> int:
    """Replace."""
    count = 0
    for node in reversed(_edit.nodes(model)):
        if node.graph is None or not _edit.is_op(node, "Mul") or len(node.inputs) != 2:
            continue
        a, b = node.inputs
        if a is None or b is None:
            continue
        for x, gate in ((a, b), (b, a)):
            alpha = _alpha(gate, x)
            if not keeps_rank(node, x):
                continue
            if alpha is not None:
                _edit.replace_node(node, "Swish", [x], {"alpha": alpha}, also=[node])
            elif _is_mish(gate, x):
                _edit.replace_node(node, "Mish", [x], also=[node])
            else:
                continue
            count += 1
            break
    return count
