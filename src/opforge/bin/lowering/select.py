"""First selection: each ONNX node becomes an elementwise node, one of the compiler's own, or stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opforge.bin.lowering.attention import lower_attention
from opforge.bin.lowering.graph import FLOAT, FLOATS, Graph, Node, Value
from opforge.onnx.elementwise import ORDERED, ROWS, VALUE_TYPES
from opforge.passes import _edit
from opforge.passes._dims import Dim
from opforge.passes._operators import operator_of
from opforge.passes.infer_shapes import dims_of
from opforge.schema import Operator

__all__ = ["ELEMENTWISE", "select"]

ELEMENTWISE = "Elementwise"
"""Name of the compiler's node for one elementwise operator; none is left in a program."""


def _plain_attributes(node: ir.Node) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, attr in node.attributes.items():
        value = attr.value
        if attr.type in (
            ir.AttributeType.TENSOR,
            ir.AttributeType.GRAPH,
            ir.AttributeType.TENSORS,
            ir.AttributeType.GRAPHS,
        ):
            out[name] = value
        else:
            out[name] = list(value) if isinstance(value, (tuple, list)) else value
    return out


def _origin(node: ir.Node) -> list[str]:
    text = (
        node.metadata_props.get("opforge.origin") or node.name or (node.outputs[0].name if node.outputs else "") or ""
    )
    return [t for t in text.split(",") if t]


def is_elementwise(node: ir.Node) -> bool:
    """Tell whether bytecode can hold a standard node with the types that it has."""
    row = ROWS.get(node.op_type)
    if row is None or node.outputs[0].dtype is None or len(node.outputs) != 1:
        return False
    types = [int(v.dtype) if v.dtype is not None else 0 for v in node.inputs if v is not None]
    output = int(node.outputs[0].dtype)
    if not types or any(t not in VALUE_TYPES for t in (*types, output)):
        return False
    if row.kind in ("float", "test"):
        if node.op_type == "Pow" and types[0] in FLOATS:
            return types[1] == types[0] or types[1] not in FLOATS or _edit.scalar(node.inputs[1]) is not None
        floats = types[0] in FLOATS or node.op_type in ORDERED
        return floats and all(t == types[0] for t in types)
    if row.kind == "cast":
        return output not in FLOATS or output == (types[0] if types[0] in FLOATS else FLOAT)
    if row.kind == "select":
        return types[1] == types[2]
    return all(t == types[0] for t in types)


class _Selector:
    def __init__(self, model: ir.Model) -> None:
        self.opset = model.opset_imports.get("", 1)
        self.values: dict[ir.Value, Value] = {}
        self.graph = Graph(model.graph.name or "main")

    def value(self, value: ir.Value | None) -> Value | None:
        """Return our value for one of ONNX's; an absent or unnamed one is None."""
        if value is None:
            return None
        found = self.values.get(value)
        if found is None:
            data = _edit.array(value)
            dtype = int(value.dtype) if value.dtype is not None else 0
            dims = [Dim.of(int(d)) for d in data.shape] if data is not None else dims_of(value)
            found = Value(value.name or "", dtype, dims, None if data is None else np.asarray(data, order="C"))
            self.values[value] = found
        return found

    def run(self, model: ir.Model) -> Graph:
        self.graph.inputs = [
            v for i in model.graph.inputs if i.name not in model.graph.initializers and (v := self.value(i))
        ]
        for node in model.graph:
            inputs = [self.value(v) for v in node.inputs]
            outputs = [self.value(o) if o.uses() or o.is_graph_output() else None for o in node.outputs]
            if outputs and outputs[0] is None and len(outputs) == 1:
                outputs = [self.value(node.outputs[0])]
            self.graph.nodes.append(self.node(node, inputs, outputs))
        for output in model.graph.outputs:
            value = self.value(output)
            assert value is not None
            value.is_output = True
            self.graph.outputs.append(value)
        return self.graph

    def node(self, node: ir.Node, inputs: list[Value | None], outputs: list[Value | None]) -> Node:
        attributes, origin = _plain_attributes(node), _origin(node)
        if node.domain not in ("", "ai.onnx"):
            operator = operator_of(node)
            assert operator is not None, node.op_type
            if operator.formula is not None and len(outputs) == 1:
                return self.formula(operator, attributes, inputs, outputs, origin)
            return Node(node.domain, node.op_type, operator.since_version, inputs, outputs, attributes, origin)
        if is_elementwise(node):
            held = {"row": node.op_type, "attributes": attributes}
            return Node("opforge", ELEMENTWISE, 1, inputs, outputs, held, origin)
        rule = _RULES.get(node.op_type)
        made = rule(inputs, outputs, attributes, origin) if rule is not None else None
        if made is not None:
            return made
        since = onnx.defs.get_schema(node.op_type, self.opset, "").since_version
        return Node("", node.op_type, since, inputs, outputs, attributes, origin)

    def formula(
        self,
        operator: Operator,
        attributes: dict[str, Any],
        inputs: list[Value | None],
        outputs: list[Value | None],
        origin: list[str],
    ) -> Node:
        values = []
        for declared in operator.signature.attributes:
            given = attributes.get(declared.name, declared.default)
            values.append(float(given) if not isinstance(given, str) else given)
        held = {"row": operator.qualified_name, "operator": operator, "attributes": {}, "values": values}
        return Node("opforge", ELEMENTWISE, 1, inputs, outputs, held, origin)


Rule = Callable[[list[Value | None], list[Value | None], dict[str, Any], list[str]], Node | None]


def _matrix(value: Value | None) -> np.ndarray[Any, Any] | None:
    if value is None or value.data is None or value.dtype not in (1,) or value.data.ndim != 2:
        return None
    return value.data


def _matmul(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    a, b = inputs
    weight = _matrix(b)
    if weight is None or a is None or b is None or a.rank is None or a.rank < 2 or not weight.size:
        return None
    k, n = weight.shape
    packed = Value(b.name, 1, [Dim.of(k), Dim.of(n)], weight, packing="matmul16")
    return Node("opforge", "MatMul", 1, [a, packed, None], outputs, {"K": k, "N": n}, origin)


def _constant_of_shape(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    """A filled tensor is an expanded number (the runtime's attributes hold no tensors)."""
    tensor = attributes.get("value")
    data = np.zeros(1, np.float32) if tensor is None else tensor.numpy()
    dtype = 1 if tensor is None else int(tensor.dtype)
    name = f"{outputs[0].name if outputs[0] is not None else 'filled'}__value"
    value = Value(name, dtype, [Dim.of(1)], np.asarray(data).reshape(1))
    return Node("", "Expand", 13, [value, inputs[0]], outputs, {}, origin)


_RULES: dict[str, Rule] = {
    "Attention": lower_attention,
    "ConstantOfShape": _constant_of_shape,
    "MatMul": _matmul,
}


def select(model: ir.Model) -> Graph:
    """Turn a cleaned model (see ``opforge.passes``) into the compiler's graph."""
    return _Selector(model).run(model)
