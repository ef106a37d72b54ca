"""Gemm with constant or quantised f32 weights is Transpose, MatMul, Mul and Add, which later passes and fusion know."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "decompose_gemm"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _is_weight(value: ir.Value | None) -> bool:
    """Tell whether ``value`` is a constant, or one that is kept quantised."""
    source = value.producer() if value is not None else None
    quantised = source is not None and _edit.is_op(source, "DequantizeLinear")
    return _edit.array(source.inputs[0] if quantised and source is not None else value) is not None


def call(model: ir.Model) -> int:
    """Replace; transposes of constants are folded afterwards."""
    count = 0
    for node in _edit.nodes(model):
        if not _edit.is_op(node, "Gemm") or node.graph is None or node.inputs[0] is None:
            continue
        if node.inputs[0].dtype != ir.DataType.FLOAT or not _is_weight(node.inputs[1]):
            continue
        dtype: np.dtype[Any] = node.inputs[0].dtype.numpy()
        name = node.outputs[0].name or "gemm"

        def step(op: str, inputs: list[ir.Value | None], attributes: dict[str, Any] | None = None) -> ir.Value:
            made = ir.Node("", op, inputs, ir.convenience.convert_attributes(attributes or {}), num_outputs=1)
            _edit.insert_before(node, made)  # noqa: B023 - called within the iteration
            made.outputs[0].name = f"{name}__{op}"  # noqa: B023
            made.outputs[0].type = node.outputs[0].type  # noqa: B023
            return made.outputs[0]

        def number(value: float) -> ir.Value:
            assert isinstance(node.graph, ir.Graph)  # noqa: B023
            return _edit.add_constant(node.graph, np.array(value, dtype), f"{name}__factor")  # noqa: B023

        a, b = (
            step("Transpose", [v], {"perm": [1, 0]}) if _edit.attribute(node, flag, 0) else v
            for v, flag in zip(node.inputs[:2], ("transA", "transB"), strict=True)
        )
        c = node.inputs[2] if len(node.inputs) > 2 else None
        alpha, beta = _edit.attribute(node, "alpha", 1.0), _edit.attribute(node, "beta", 1.0)
        scaled, shifted = alpha != 1.0, c is not None and beta != 0.0
        if shifted and beta != 1.0:
            c = step("Mul", [c, number(beta)])
        steps: list[tuple[str, list[ir.Value | None]]] = [("MatMul", [a, b])]
        if scaled:
            steps.append(("Mul", [None, number(alpha)]))
        if shifted:
            steps.append(("Add", [None, c]))
        y: ir.Value | None = None
        for op, inputs in steps[:-1]:
            y = step(op, [y if v is None else v for v in inputs])
        last, inputs = steps[-1]
        _edit.replace_node(node, last, [y if v is None else v for v in inputs])
        count += 1
    return count
