"""Shape inference: onnx's rule for types and ranks, our own symbolic rules for dimensions, the schema of custom nodes.

Every value gets ``meta["dims"]`` (list of Dim, or absent when not even the rank is known) and, where the elements of
a small integer tensor are known in terms of dimensions, ``meta["known"]``.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from opforge.errors import ArgumentError, OpforgeError
from opforge.passes import _control_shapes, _edit, _shape_rules, _shape_values
from opforge.passes._attention_shapes import attention_outputs
from opforge.passes._dims import Dim, parse, unknown
from opforge.passes._operators import ELEMENTWISE, OWN, OWN_DOMAIN, attributes_of, operator_of
from opforge.schema import ABSENT, DType

__all__ = ["ENSURES", "NAME", "REQUIRES", "begin", "call", "dims_of", "infer_node", "type_proto"]

NAME = "infer_shapes"
REQUIRES: tuple[str, ...] = ("sorted", "no_functions")
ENSURES: tuple[str, ...] = ("shapes",)


_WRONG = (
    onnx.shape_inference.InferenceError,
    onnx.defs.SchemaError,
    onnx.checker.ValidationError,
    RuntimeError,
)


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


def type_proto(value: ir.Value) -> onnx.TypeProto | None:
    """Return type and shape of a value as ONNX writes them (of a sequence: those of its tensors), None when unknown."""
    if value.type is None or value.dtype is None:
        return None
    proto = onnx.TypeProto()
    ir.serde.serialize_type_into(proto, value.type)
    dims = dims_of(value)
    if dims is not None:
        leaf = proto
        while not leaf.HasField("tensor_type"):
            held = leaf.WhichOneof("value")
            if held not in ("sequence_type", "optional_type"):
                return None
            leaf = getattr(leaf, held).elem_type
        leaf.tensor_type.shape.SetInParent()
        for d in dims:
            dim = leaf.tensor_type.shape.dim.add()
            if d.constant is not None:
                dim.dim_value = d.constant
            else:
                dim.dim_param = str(d)
    return proto


def _standard(node: ir.Node, opset: int) -> None:
    """Fill types and dimensions of the outputs of a standard node by onnx's own inference."""
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    names: dict[str, Dim] = {}
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    written = ir.serde.serialize_node(node)  # ir.to_proto asks for each protocol first, which takes longer
    for k, value in enumerate(node.inputs):
        if value is None:
            continue
        proto = type_proto(value)
        if proto is None:
            return
        name = written.input[k] = f"{k}"  # values of different graphs may share a name
        scalar = node.op_type == "Range" and [d.constant for d in dims_of(value) or []] == [1]
        if scalar:  # onnx's rule wants no dimension; models, those that onnx itself writes too, have one of one element
            proto.tensor_type.shape.ClearField("dim")
        types[name] = proto
        names.update({str(d): d for d in dims_of(value) or []})
        known = _known(value)
        if (array := _edit.array(value)) is not None and array.size <= _shape_values.LIMIT and array.dtype != object:
            data[name] = onnx.numpy_helper.from_array(array.reshape(()) if scalar else array, name)
        elif known is not None and all(d.constant is not None for d in known):
            rank = 0 if scalar else len(dims_of(value) or [])
            array = np.array([d.constant for d in known], value.dtype.numpy() if value.dtype else np.int64)
            data[name] = onnx.numpy_helper.from_array(array.reshape((-1,) if rank else ()), name)
    inferred = onnx.shape_inference.infer_node_outputs(
        schema, written, types, data, opset_imports=[onnx.helper.make_opsetid("", opset)]
    )
    for output in node.outputs:
        proto = inferred.get(output.name or "")
        if proto is None:
            continue
        found = ir.serde.deserialize_type_proto_for_type(proto)
        shape = ir.serde.deserialize_type_proto_for_shape(proto)
        output.type = found if found is not None else output.type
        if shape is not None:
            texts = [d if isinstance(d, int) else d.value for d in shape]
            output.meta["dims"] = [names[t] if isinstance(t, str) and t in names else parse(t) for t in texts]


def _custom(node: ir.Node) -> None:
    operator = operator_of(node)
    if operator is None:
        return
    shapes: list[list[Dim] | None] = [dims_of(v) for v in node.inputs]
    if operator.formula is not None and all(s is not None for s in shapes):
        out: list[list[Dim] | None] = [_shape_rules.broadcast([s for s in shapes if s is not None])] * len(node.outputs)
        for output, dims in zip(node.outputs, out, strict=True):
            _set(output, None if node.inputs[0] is None else node.inputs[0].dtype, dims)
        return
    texts = [
        ABSENT if v is None else None if s is None else [d.constant if d.constant is not None else str(d) for d in s]
        for v, s in zip(node.inputs, shapes, strict=True)
    ]
    names = {str(d): d for s in shapes if s is not None for d in s}
    dtypes = [None if v is None or v.dtype is None else DType.from_onnx(int(v.dtype)) for v in node.inputs]
    given = attributes_of(node, operator)
    try:
        binding = operator.signature.bind(texts, dtypes, given, where=operator.qualified_name)
    except OpforgeError as error:
        raise ArgumentError(str(error), where=f"node {node.name!r} ({node.domain}::{node.op_type})") from error
    made = zip(binding.output_shapes, binding.output_dtypes, strict=True)
    outputs = iter(node.outputs)
    for count in binding.output_counts:
        if not count:
            next(outputs, None)  # an absent one has its place
        for _ in range(count):
            shape, dtype = next(made)
            target = next(outputs, None)
            if target is not None:
                dims = None if shape is None else [names[d] if d in names else parse(d) for d in shape]
                _set(target, None if dtype is None else ir.DataType(dtype.onnx), dims)


def _set(output: ir.Value, dtype: ir.DataType | None, dims: list[Dim] | None) -> None:
    """Tell a value what is known of it; a dtype that it has stays."""
    if output.dtype is None and dtype is not None:
        output.dtype = dtype
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
    if node.op_type == "Attention":
        for further, found in zip(node.outputs[1:], attention_outputs(node, shapes), strict=False):
            if found is not None:
                further.meta["dims"] = found
    if node.op_type in _shape_values.RULES and output.dtype in (ir.DataType.INT64, ir.DataType.INT32):
        found = _shape_values.RULES[node.op_type](node, shapes, known)
        made = dims_of(output)  # elements are a list: of matrices the rules know nothing
        output.meta["known"] = found if made is not None and len(made) <= 1 else None


def _publish(value: ir.Value) -> None:
    dims = value.meta.get("dims")
    if dims is not None:
        plain = [d.constant if d.constant is not None else None if d.is_anonymous else str(d) for d in dims]
        value.shape = ir.Shape(plain)  # a new one: a shape that was read from a file is frozen


def _made(node: ir.Node) -> str:
    """Name a nameless node by what it gives."""
    return "-> " + ", ".join(value.name or "?" for value in node.outputs)


def begin(graph: ir.Graph, given: _control_shapes.Given | None = None) -> None:
    """Forget what was known of the values that a graph begins with, and take what is given for its inputs."""
    for value in (*graph.inputs, *graph.initializers.values()):
        value.meta.pop("known", None)
        value.meta.pop("dims", None)
        if given is not None and value in given:
            dims = given[value]
            value.shape = None
            if dims is not None:
                value.meta["dims"] = dims
                _publish(value)
        dims_of(value)


def infer_node(node: ir.Node, opset: int) -> int:
    """Infer types and shapes of the outputs of a node whose inputs are known; return how many had no shape.

    Raises:
        ArgumentError: the node contradicts its operator's rules.
    """
    changed = 0
    for output in node.outputs:
        output.meta.pop("known", None)
        output.meta.pop("dims", None)
    if _edit.subgraphs(node):
        changed += _control_shapes.infer(node, opset, _graph, dims_of)
    elif node.domain in ("", "ai.onnx"):
        try:
            _standard(node, opset)
        except _WRONG as error:
            raise ArgumentError(
                "the model contradicts itself: " + str(error).splitlines()[0],
                where=f"node {repr(node.name) if node.name else _made(node)} ({node.op_type})",
                got=", ".join(f"{v.name}: {v.shape}" for v in node.inputs if v is not None),
            ) from error
        if node.outputs:
            _refine(node)
    elif node.domain == OWN_DOMAIN and node.op_type in OWN:
        _set(node.outputs[0], OWN[node.op_type], dims_of(node.inputs[0]))
    else:
        _custom(node)
    for output in node.outputs:
        if "dims" not in output.meta and output.shape is not None:
            output.meta["dims"] = [unknown() if parse(d).is_anonymous else parse(d) for d in output.shape]
        changed += output.shape is None
        _publish(output)
    return changed


def _graph(graph: ir.Graph, opset: int, given: _control_shapes.Given) -> int:
    begin(graph, given)
    return sum(infer_node(node, opset) for node in graph)


def call(model: ir.Model) -> int:
    """Infer the types and shapes of all values of the main graph and its subgraphs; return how many had none."""
    return _graph(model.graph, model.opset_imports.get("", 1), {})
