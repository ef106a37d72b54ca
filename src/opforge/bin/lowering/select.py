"""First selection: each ONNX node becomes an elementwise node, one of the compiler's own, or stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from opforge.bin.encode import STRING
from opforge.bin.lowering.attention import lower_attention
from opforge.bin.lowering.graph import FLOAT, FLOATS, HALVES, Graph, Node, Value
from opforge.bin.lowering.recurrent import lower_gru, lower_lstm, lower_rnn
from opforge.onnx.elementwise import ORDERED, ROWS, VALUE_TYPES
from opforge.passes import _edit
from opforge.passes._dims import Dim
from opforge.passes._operators import OWN, OWN_DOMAIN, operator_of
from opforge.passes.infer_shapes import dims_of
from opforge.passes.raise_attention import NAN_ROWS
from opforge.schema import Operator

__all__ = ["ELEMENTWISE", "kind_of", "pack_product", "select"]

ELEMENTWISE = "Elementwise"
"""Name of the compiler's node for one elementwise operator; none is left in a program."""


_ELSEWHERE = frozenset(
    {
        ir.AttributeType.GRAPH,
        ir.AttributeType.GRAPHS,
        ir.AttributeType.TYPE_PROTO,
        ir.AttributeType.TYPE_PROTOS,
    }
)
"""Subgraphs are lowered, and the type of a value stands with the value."""


def kind_of(value: ir.Value) -> str:
    """Return what a value holds: "tensor", "sequence", "optional", "optional_sequence", else "unknown"."""
    held: object = value.type
    name = ""
    if isinstance(held, ir.OptionalType):
        name, held = "optional", held.elem_type
    if isinstance(held, ir.SequenceType):
        name, held = f"{name}_sequence" if name else "sequence", held.elem_type
    return (name or "tensor") if held is None or isinstance(held, ir.TensorType) else "unknown"


def _plain_attributes(node: ir.Node) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, attr in node.attributes.items():
        value = attr.value
        if attr.type in _ELSEWHERE:
            continue
        if attr.type in (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS):
            out[name] = value
        else:
            out[name] = list(value) if isinstance(value, (tuple, list)) else value
    if NAN_ROWS in node.metadata_props:
        out["nan_rows"] = 1
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
        if output in FLOATS and types[0] in FLOATS and output != types[0]:
            return {output, types[0]} in ({FLOAT, half} for half in HALVES)
        return output not in FLOATS or output == (types[0] if types[0] in FLOATS else FLOAT)
    if row.kind == "select":
        return types[1] == types[2]
    return all(t == types[0] for t in types)


class _Selector:
    """Selects for one graph; what a subgraph reads of the graphs around comes through the selector of the next one."""

    def __init__(self, source: ir.Graph, opset: int, outer: _Selector | None = None) -> None:
        self.source, self.opset, self.outer = source, opset, outer
        self.values: dict[ir.Value, Value] = {}
        self.captured: dict[ir.Value, Value] = {}
        self.graph = Graph(source.name or ("main" if outer is None else "body"))

    def value(self, value: ir.Value | None) -> Value | None:
        """Return our value for one of ONNX's; an absent or unnamed one is None."""
        if value is None:
            return None
        found = self.values.get(value)
        if found is None:
            foreign = self.outer is not None and value.graph is not self.source
            found = self.values[value] = self._capture(value) if foreign else self._make(value)
        return found

    def _make(self, value: ir.Value) -> Value:
        data = _edit.array(value)
        dtype = int(value.dtype) if value.dtype is not None else 0
        dims = [Dim.of(int(d)) for d in data.shape] if data is not None else dims_of(value)
        return Value(value.name or "", dtype, dims, data, kind=kind_of(value))

    def _capture(self, value: ir.Value) -> Value:
        assert self.outer is not None
        outside = self.outer.value(value)
        assert outside is not None
        if outside.data is not None:
            return outside
        inside = Value(outside.name, outside.dtype, outside.dims, kind=outside.kind)
        self.captured[value] = inside
        return inside

    def run(self) -> Graph:
        self.graph.inputs = [v for i in self.source.inputs if (v := self.value(i))]
        for node in self.source:
            inputs = [self.value(v) for v in node.inputs]
            outputs = [self.value(o) if o.uses() or o.is_graph_output() else None for o in node.outputs]
            if outputs and outputs[0] is None and len(outputs) == 1:
                outputs = [self.value(node.outputs[0])]
            held = {name: a.as_graph() for name, a in node.attributes.items() if a.type is ir.AttributeType.GRAPH}
            made = self.holder(node, inputs, outputs, held) if held else self.node(node, inputs, outputs)
            self.graph.nodes.append(made)
        for output in self.source.outputs:
            value = self.value(output)
            assert value is not None
            value.is_output = True
            self.graph.outputs.append(value)
        if self.outer is not None:
            _pass_through(self.graph)
        return self.graph

    def holder(
        self, node: ir.Node, inputs: list[Value | None], outputs: list[Value | None], held: dict[str, ir.Graph]
    ) -> Node:
        """Select inside the subgraphs, and give the node what they read."""
        since = onnx.defs.get_schema(node.op_type, self.opset, "").since_version
        made = Node("", node.op_type, since, inputs, outputs, _plain_attributes(node), _origin(node))
        made.formal = len(inputs)
        places: dict[ir.Value, int] = {}
        for name, graph in held.items():
            inner = _Selector(graph, self.opset, self)
            made.subgraphs[name] = inner.run()
            for value, inside in inner.captured.items():
                if value not in places:
                    places[value] = len(made.inputs)
                    made.inputs.append(self.value(value))
                made.subgraphs[name].captures.append((places[value], inside))
        return made

    def node(self, node: ir.Node, inputs: list[Value | None], outputs: list[Value | None]) -> Node:
        attributes, origin = _plain_attributes(node), _origin(node)
        if node.domain == OWN_DOMAIN and node.op_type in OWN:
            return Node(OWN_DOMAIN, node.op_type, 1, inputs, outputs, attributes, origin)
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


def _pass_through(graph: Graph) -> None:
    """Let a subgraph give what only passes through it as it is, without the Identity that graph passes need."""
    readers = graph.readers()
    for k, output in enumerate(graph.outputs):
        node = output.producer
        source = node.inputs[0] if node is not None and (node.domain, node.op) == ("", "Identity") else None
        if node is None or source is None or source.kind != output.kind or readers.get(output):
            continue
        graph.outputs[k] = source
        source.is_output = source.is_output or source.data is None
        if output not in graph.outputs:
            graph.nodes.remove(node)


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


def pack_product(node: Node) -> Node | None:
    """Make a MatMul whose weights have become constant a product with packed weights."""
    return _matmul(node.inputs, node.outputs, node.attributes, node.origin)


def _average_pool(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    """One window over the whole image is a global pool, which has faster loops."""
    x, pads = inputs[0], attributes.get("pads") or [0]
    if x is None or x.dtype != FLOAT or x.dims is None or any(pads):
        return None
    whole = [d.constant for d in x.dims[2:]] == list(attributes["kernel_shape"])
    if (
        not whole
        or any(d != 1 for d in attributes.get("dilations") or [1])
        or attributes.get("auto_pad", "NOTSET") != "NOTSET"
    ):
        return None
    return Node("", "GlobalAveragePool", 22, inputs, outputs, {}, origin)


def _string_equal(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    if any(v is None or v.dtype != STRING for v in inputs):
        return None
    return Node("opforge", "StringEqual", 1, inputs, outputs, {}, origin)


def _string_cast(
    inputs: list[Value | None], outputs: list[Value | None], attributes: dict[str, Any], origin: list[str]
) -> Node | None:
    if all(v is None or v.dtype != STRING for v in (*inputs, *outputs)):
        return None
    return Node("opforge", "StringCast", 1, inputs, outputs, {}, origin)


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
    "AveragePool": _average_pool,
    "Cast": _string_cast,
    "ConstantOfShape": _constant_of_shape,
    "Equal": _string_equal,
    "GRU": lower_gru,
    "LSTM": lower_lstm,
    "MatMul": _matmul,
    "RNN": lower_rnn,
}


def select(model: ir.Model) -> Graph:
    """Turn a cleaned model (see ``opforge.passes``) into the compiler's graph."""
    return _Selector(model.graph, model.opset_imports.get("", 1)).run()
