"""Writes the nodes of a function body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

__all__ = ["OPSET", "Body"]

OPSET = 24
"""Version of the standard operators that bodies are written in."""


class Body:
    """A function under construction; values are names.

    Attributes:
        inputs: names of the node's inputs, "" where one is absent.
    """

    def __init__(self, node: ir.Node) -> None:
        self.inputs = [f"i{k}" if v is not None else "" for k, v in enumerate(node.inputs)]
        self._nodes: list[onnx.NodeProto] = []
        self._given = len(node.inputs)

    def has(self, index: int) -> bool:
        """Tell whether the node has this input."""
        return index < len(self.inputs) and self.inputs[index] != ""

    def ops(self, op_type: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:  # noqa: ANN401
        """Append a node with ``count`` outputs."""
        names = [f"v{len(self._nodes)}_{k}" for k in range(count)]
        self._nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401
        """Append a node with one output."""
        return self.ops(op_type, inputs, 1, **attributes)[0]

    def constant(self, data: Any, dtype: Any = None) -> str:  # noqa: ANN401 - anything that NumPy takes
        """Append a constant tensor."""
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(data, dtype)))

    def integers(self, *values: int) -> str:
        """Append a list of int64."""
        return self.constant(values, np.int64)

    def number(self, value: float, like: str) -> str:
        """Append a number of the type of ``like``."""
        return self.op("CastLike", self.constant(value, np.float64), like)

    def cast(self, value: str, dtype: ir.DataType | int) -> str:
        """Append a conversion."""
        return self.op("Cast", value, to=int(dtype))

    def function(self, outputs: Sequence[str]) -> onnx.FunctionProto:
        """Return the function; names and domain are the caller's to choose."""
        imports = [helper.make_opsetid("", OPSET)]
        inputs = [f"i{k}" for k in range(self._given)]
        return helper.make_function("body", "body", inputs, outputs, self._nodes, imports)
