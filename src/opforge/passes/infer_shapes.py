"""Shape inference: onnx's rule for types and ranks, our own symbolic rules for dimensions, the schema of custom nodes.

Every value gets ``meta["dims"]`` (list of Dim, or absent when not even the rank is known) and, where the elements of
a small integer tensor are known in terms of dimensions, ``meta["known"]``.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from opforge.errors import ArgumentError, OpforgeError
from opforge.passes import _edit, _shape_rules, _shape_values
from opforge.passes._dims import Dim, parse, unknown
from opforge.passes._operators import ELEMENTWISE, operator_of
from opforge.schema import DType

__all__ = ["ENSURES", "NAME", "REQUIRES", "call", "dims_of"]

NAME = "infer_shapes"
REQUIRES: tuple[str, ...] = ("sorted", "no_functions")
ENSURES: tuple[str, ...] = ("shapes",)


def dims_of(value: ir.Value | None) -> list[Dim] | None:
    """Return the symbolic dimensions of a value, None when its rank is not known."""
    if value is None:
        return None
    if "dims" not in value.meta and value.shape is not None:
        value.meta["dims"] = [parse(d) for d in value.shape]
    dims: list[Dim] | None = value.meta.get("dims")
    return dims


def _known(value: ir.Value | None) -> list[Dim] | None:
    if value is None:
        return None
    if "known" not in value.meta:
        data = _edit.array(value)
        small = data is not None and data.size <= _shape_values.LIMIT and data.dtype.kind in "iu" and data.ndim <= 1
        value.meta["known"] = [Dim.of(int(v)) for v in data.reshape(-1)] if small and data is not None else None
    known: list[Dim] | None = value.meta["known"]
    return known


def _type_proto(value: ir.Value) -> onnx.TypeProto | None:
    if value.type is None or value.dtype is None or not isinstance(value.type, ir.TensorType):
        return None
    dims = dims_of(value)
    shape = None if dims is None else [d.constant if d.constant is not None else str(d) for d in dims]
    return onnx.helper.make_tensor_type_proto(int(value.dtype), shape)


def _standard(node: ir.Node, opset: int) -> None:
    """Fill types and dimensions of the outputs of a standard node by onnx's own inference."""
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    names: dict[str, Dim] = {}
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value in node.inputs:
        if value is None or value.name is None:
            continue
        proto = _type_proto(value)
        if proto is None:
            return
        types[value.name] = proto
        names.update({str(d): d for d in dims_of(value) or []})
        known = _known(value)
        if (array := _edit.array(value)) is not None and array.size <= _shape_values.LIMIT:
            data[value.name] = onnx.numpy_helper.from_array(array, value.name)
        elif known is not None and all(d.constant is not None for d in known):
            rank = len(dims_of(value) or [])
            array = np.array([d.constant for d in known], value.dtype.numpy() if value.dtype else np.int64)
            data[value.name] = onnx.numpy_helper.from_array(array.reshape((-1,) if rank else ()), value.name)
    inferred = onnx.shape_inference.infer_node_outputs(
        schema, ir.to_proto(node), types, data, opset_imports=[onnx.helper.make_opsetid("", opset)]
    )
    for output in node.outputs:
        proto = inferred.get(output.name or "")
        if proto is None or not proto.HasField("tensor_type"):
            continue
        output.type = ir.TensorType(ir.DataType(proto.tensor_type.elem_type))
        if proto.tensor_type.HasField("shape"):
            dims = []
            for d in proto.tensor_type.shape.dim:
                text = d.dim_param if d.HasField("dim_param") else d.dim_value if d.HasField("dim_value") else None
                dims.append(names[text] if isinstance(text, str) and text in names else parse(text))
            output.meta["dims"] = dims


def _custom(node: ir.Node) -> None:
    operator = operator_of(node)
    if operator is None:
        return
    shapes: list[list[Dim] | None] = [dims_of(v) for v in node.inputs]
    if operator.formula is not None and all(s is not None for s in shapes):
        out: list[list[Dim] | None] = [_shape_rules.broadcast([s for s in shapes if s is not None])] * len(node.outputs)
    else:
        texts = [None if s is None else [d.constant if d.constant is not None else str(d) for d in s] for s in shapes]
        names = {str(d): d for s in shapes if s is not None for d in s}
        dtypes = [None if v is None or v.dtype is None else DType.from_onnx(int(v.dtype)) for v in node.inputs]
        attributes = {k: a.value for k, a in node.attributes.items()}
        try:
            binding = operator.signature.bind(texts, dtypes, attributes, where=operator.qualified_name)
        except OpforgeError as error:
            raise ArgumentError(str(error), where=f"node {node.name!r} ({node.domain}::{node.op_type})") from error
        out = [
            None if s is None else [names[d] if isinstance(d, str) and d in names else parse(d) for d in s]
            for s in binding.output_shapes
        ]
    for output, dims in zip(node.outputs, out, strict=True):
        if output.dtype is None and node.inputs and node.inputs[0] is not None:
            output.type = node.inputs[0].type
        if dims is not None:
            output.meta["dims"] = dims


def _refine(node: ir.Node) -> None:
    """Replace dimensions that onnx left without a name, and follow the elements of shape tensors."""
    output = node.outputs[0]
    shapes = [dims_of(v) for v in node.inputs]
    known = [_known(v) for v in node.inputs]
    dims: list[Dim] | None = None
    if node.op_type in _shape_rules.RULES:
        dims = _shape_rules.RULES[node.op_type](node, shapes, known)
    elif node.op_type in ELEMENTWISE and all(s is not None for s in shapes):
        dims = _shape_rules.broadcast([s for s in shapes if s is not None])
    before = output.meta.get("dims")
    if dims is not None and (before is None or len(before) == len(dims)):
        merged = (
            dims if before is None else [b if b.constant is not None else d for b, d in zip(before, dims, strict=True)]
        )
        output.meta["dims"] = merged
    if node.op_type in _shape_values.RULES and output.dtype in (ir.DataType.INT64, ir.DataType.INT32):
        output.meta["known"] = _shape_values.RULES[node.op_type](node, shapes, known)


def _publish(value: ir.Value) -> None:
    dims = value.meta.get("dims")
    if dims is not None:
        plain = [d.constant if d.constant is not None else None if d.is_anonymous else str(d) for d in dims]
        value.shape = ir.Shape(plain)  # a new one: a shape that was read from a file is frozen


def _subgraphs(node: ir.Node) -> list[ir.Graph]:
    found: list[ir.Graph] = []
    for attr in node.attributes.values():
        if attr.type is ir.AttributeType.GRAPH:
            found.append(attr.as_graph())
        elif attr.type is ir.AttributeType.GRAPHS:
            found.extend(attr.as_graphs())
    return found


def _control_flow(node: ir.Node, opset: int) -> int:
    """Infer inside the subgraphs; the outputs of an If have what both branches agree on."""
    branches = _subgraphs(node)
    changed = sum(_graph(branch, opset) for branch in branches)
    if node.op_type == "If":
        for k, output in enumerate(node.outputs):
            ends = [branch.outputs[k] for branch in branches]
            if output.dtype is None and all(end.type == ends[0].type for end in ends):
                output.type = ends[0].type
            shapes = [dims_of(end) for end in ends]
            first = shapes[0]
            if first is not None and all(s is not None and len(s) == len(first) for s in shapes):
                columns = zip(*[s for s in shapes if s is not None], strict=True)
                output.meta["dims"] = [c[0] if all(d == c[0] for d in c) else unknown() for c in columns]
    return changed


def _made(node: ir.Node) -> str:
    """Name a nameless node by what it gives."""
    return "-> " + ", ".join(value.name or "?" for value in node.outputs)


def _graph(graph: ir.Graph, opset: int) -> int:
    for value in (*graph.inputs, *graph.initializers.values()):
        value.meta.pop("known", None)
        value.meta.pop("dims", None)
        dims_of(value)
    changed = 0
    for node in graph:
        for output in node.outputs:
            output.meta.pop("known", None)
            output.meta.pop("dims", None)
        if _subgraphs(node):
            changed += _control_flow(node, opset)
        elif node.domain in ("", "ai.onnx"):
            try:
                _standard(node, opset)
            except (onnx.shape_inference.InferenceError, onnx.defs.SchemaError, RuntimeError) as error:
                raise ArgumentError(
                    "the model contradicts itself: " + str(error).splitlines()[0],
                    where=f"node {repr(node.name) if node.name else _made(node)} ({node.op_type})",
                    got=", ".join(f"{v.name}: {v.shape}" for v in node.inputs if v is not None),
                ) from error
            if node.outputs:
                _refine(node)
        else:
            _custom(node)
        for output in node.outputs:
            if "dims" not in output.meta and output.shape is not None:
                output.meta["dims"] = [unknown() if parse(d).is_anonymous else parse(d) for d in output.shape]
            changed += output.shape is None
            _publish(output)
    return changed


def call(model: ir.Model) -> int:
    """Infer the types and shapes of all values of the main graph and its subgraphs."""
    return _graph(model.graph, model.opset_imports.get("", 1))
