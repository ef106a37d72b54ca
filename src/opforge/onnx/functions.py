"""Function bodies, opset imports and metadata: what makes a model with our nodes complete."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import opforge
from opforge.codegen.onnx_function import emit_function
from opforge.errors import ExportError
from opforge.onnx._walk import nodes, opset_versions, standard
from opforge.schema import Operator, Required, registry

if TYPE_CHECKING:
    import onnx

__all__ = ["METADATA_OPERATORS", "METADATA_SCHEMA_HASH", "METADATA_VERSION", "complete_model", "function_of"]

METADATA_OPERATORS = "opforge.operators"
METADATA_SCHEMA_HASH = "opforge.schema_hash"
METADATA_VERSION = "opforge.version"


def function_of(operator: Operator, opset: int) -> onnx.FunctionProto | None:
    """Return the operator's body for a model with default opset ``opset``; None for kernel operators without one.

    The body carries the schema hash, so that a later compile can tell whether it still says what the registered
    formula says.
    """
    if operator.formula is None:
        return None if operator.onnx_body is None else _authored(operator, opset)
    formula: Any = operator.formula
    signature = operator.signature
    function = emit_function(
        formula.program(),
        domain=operator.domain,
        name=operator.name,
        inputs=[p.name for p in signature.inputs],
        outputs=[p.name for p in signature.outputs],
        attributes=[
            (a.name, a.kind, None if isinstance(a.default, Required) else a.default) for a in signature.attributes
        ],
        opset=opset,
        doc=operator.doc or "",
    )
    function.metadata_props.add(key=METADATA_SCHEMA_HASH, value=operator.schema_hash)
    return function


def complete_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Add, in place, what registered custom nodes need: opset imports, function bodies, metadata.

    Nodes of domains that nobody registered are left as they are. Existing bodies and imports stay.
    """
    found: dict[str, Operator] = {}
    imports = opset_versions(model)
    for place in nodes(model):
        node = place.node
        if standard(node.domain):
            continue
        operator = registry.find(node.domain, node.op_type, place.opsets.get(node.domain))
        if operator is not None:
            found[operator.key] = operator
    present = {(f.domain, f.name) for f in model.functions}
    for operator in found.values():
        if operator.domain not in imports:
            imports[operator.domain] = operator.since_version
            model.opset_import.add(domain=operator.domain, version=operator.since_version)
        if (operator.domain, operator.name) not in present:
            body = function_of(operator, imports.get("", 18))
            if body is not None:
                model.functions.append(body)
    if found:
        _set_metadata(model, METADATA_VERSION, opforge.__version__)
        rows = [
            {
                "domain": op.domain,
                "name": op.name,
                "version": op.since_version,
                "package": op.package or "",
                "schema_hash": op.schema_hash,
            }
            for op in found.values()
        ]
        _set_metadata(model, METADATA_OPERATORS, json.dumps(rows, separators=(",", ":")))
    if model.functions and model.ir_version < 8:
        model.ir_version = 8
    return model


def _authored(operator: Operator, opset: int) -> onnx.FunctionProto:
    """Parse a kernel operator's body, written by its author as the nodes of an ONNX function."""
    from onnx import helper, parser

    signature = operator.signature
    attributes = ", ".join(a.name for a in signature.attributes)
    head = f'<domain: "{operator.domain}", opset_import: ["" : {opset}]> {operator.name} '
    head += f"<{attributes}> " if attributes else ""
    inputs, outputs = (", ".join(p.name for p in side) for side in (signature.inputs, signature.outputs))
    try:
        function = parser.parse_function(f"{head}({inputs}) => ({outputs}) {{ {operator.onnx_body} }}")
    except parser.ParseError as problem:
        raise ExportError(
            "the operator's onnx_body does not parse", where=operator.qualified_name, got=str(problem)
        ) from problem
    for attribute in signature.attributes:
        if not isinstance(attribute.default, Required) and attribute.default is not None:
            value = int(attribute.default) if isinstance(attribute.default, bool) else attribute.default
            function.attribute.remove(attribute.name)
            function.attribute_proto.append(helper.make_attribute(attribute.name, value))
    function.metadata_props.add(key=METADATA_SCHEMA_HASH, value=operator.schema_hash)
    return function


def _set_metadata(model: onnx.ModelProto, key: str, value: str) -> None:
    for item in model.metadata_props:
        if item.key == key:
            item.value = value
            return
    model.metadata_props.add(key=key, value=value)
