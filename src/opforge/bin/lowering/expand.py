"""Operators without a kernel run through a body: one of ours (``lowering.bodies``), or that of ONNX."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from opforge.bin.lowering import bodies
from opforge.bin.lowering._generated.kernels import KERNELS
from opforge.bin.lowering.attention import KNOWN
from opforge.bin.lowering.bodies._writer import OPSET
from opforge.bin.lowering.select import is_elementwise
from opforge.passes import _edit, close_subgraphs, inline_functions, lift_constants, lower_scan, upgrade_opset
from opforge.passes.infer_shapes import type_proto
from opforge.schema import registry

__all__ = ["PREVIEW", "expand_domains", "expand_functions"]

DOMAIN = "opforge.body"
PREVIEW = "ai.onnx.preview"
"""Domain of operators that ONNX tries out; they run by their bodies only."""
MAX_ROUNDS = 4
"""Bodies may call operators with bodies."""


def expand_functions(model: ir.Model) -> int:
    """Inline bodies until no node is left that has one and no kernel; return how many were inlined.

    Shapes and types must be known, since some bodies depend on them; those of the new nodes are inferred.
    """
    opset = model.opset_imports.get("", 1)
    made = 0
    for node in _edit.nodes(model):
        if node.domain not in ("", "ai.onnx", PREVIEW) or is_elementwise(node):
            continue
        function = bodies.body_of(node)
        if function is None and _needs_body(node, opset):
            function = _body(_schema(node, opset), node)
        if function is not None and _replace(model, node, function, opset, made):
            made += 1
    if made:
        model.opset_imports[DOMAIN] = 1
        InlinePass()(model)
        model.functions.clear()
        model.opset_imports.pop(DOMAIN, None)
        model.opset_imports[""] = opset
        close_subgraphs.call(model)
        lift_constants.call(model)
        upgrade_opset.call(model)
        lower_scan.call(model)
    return made


def expand_domains(model: ir.Model) -> int:
    """Replace nodes of ONNX's other domains by bodies of ours, before anything is known of types."""
    made = 0
    version = model.opset_imports.setdefault("", model.opset_imports.pop("ai.onnx", OPSET))
    for node in _edit.nodes(model):
        if node.domain not in bodies.DOMAINS or registry.find(node.domain, node.op_type) is not None:
            continue
        function = bodies.body_of(node)
        if function is not None and _replace(model, node, function, version, made):
            made += 1
    if made:
        model.opset_imports[DOMAIN] = 1
        inline_functions.call(model)
        model.opset_imports.pop(DOMAIN, None)
    return made


def _replace(model: ir.Model, node: ir.Node, function: onnx.FunctionProto, opset: int, number: int) -> bool:
    """Put a call of the body in the node's place; tell whether the body gives what is read of the node."""
    outputs = [k for k, o in enumerate(node.outputs) if o.uses() or o.is_graph_output()]
    defined = {o for n in function.node for o in n.output}
    kept = [function.output[k] for k in outputs if k < len(function.output)]
    if not function.node or len(kept) != len(outputs) or any(o not in defined for o in kept):
        return False
    del function.output[:]
    function.output.extend(kept)
    function.name, function.domain = f"{node.op_type}_{number}", DOMAIN
    written = next((o.version for o in function.opset_import if o.domain in ("", "ai.onnx")), opset)
    del function.opset_import[:]
    function.opset_import.append(onnx.helper.make_opsetid("", opset))
    body = ir.serde.deserialize_function(function)
    for inner in body.all_nodes():
        inner.version = written
    model.functions[body.identifier()] = body
    attributes = dict(node.attributes) if body.attributes else {}  # our own bodies have them written in
    attributes = {k: a for k, a in attributes.items() if a.type is not ir.AttributeType.GRAPH}  # so have those of ONNX
    if attributes or body.attributes:
        for name, declared in _schema(node, opset).attributes.items():
            if name not in attributes and declared.default_value.name:
                attributes[name] = ir.serde.deserialize_attribute(declared.default_value)
    call = ir.Node(DOMAIN, function.name, node.inputs, attributes.values(), num_outputs=len(outputs), name=node.name)
    _edit.insert_before(node, call)
    for k, new in zip(outputs, call.outputs, strict=True):
        old = node.outputs[k]
        _edit.set_meta(new, old)
        new.name = f"{old.name}__body"
        _edit.replace_value(old, new)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return True


def _schema(node: ir.Node, opset: int) -> Any:  # noqa: ANN401 - onnx.defs.OpSchema, which has no stub
    preview = node.domain == PREVIEW
    return onnx.defs.get_schema(node.op_type, 1 if preview else opset, PREVIEW if preview else "")


def _needs_body(node: ir.Node, opset: int) -> bool:
    if node.domain == PREVIEW:
        return True
    if node.op_type == "Attention":
        double = node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.DOUBLE
        return double or not set(node.attributes) <= KNOWN
    since = onnx.defs.get_schema(node.op_type, opset, "").since_version
    rows = (*KERNELS.get(("", node.op_type), ()), *KERNELS.get(("opforge", node.op_type), ()))
    return not any(first <= since <= last for first, last in rows)


def _body(schema: Any, node: ir.Node) -> onnx.FunctionProto | None:  # noqa: ANN401
    """Return the body that ONNX gives for this node."""
    function = onnx.FunctionProto()
    if schema.has_function:
        function.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        types = []
        for value in node.inputs:
            proto = type_proto(value) if value is not None else None
            proto = proto if proto is not None else onnx.TypeProto()
            types.append(proto.SerializeToString())
        function.ParseFromString(schema.get_context_dependent_function(ir.to_proto(node).SerializeToString(), types))
    return function if function.node else None
