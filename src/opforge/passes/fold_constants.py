"""Nodes whose inputs are all constant are computed; shape arithmetic over known dimensions becomes a constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from opforge.errors import ArgumentError
from opforge.passes import _edit
from opforge.passes._operators import IMPURE, attributes_of, operator_of
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "LIMIT", "NAME", "REQUIRES", "call"]

NAME = "fold_constants"
REQUIRES: tuple[str, ...] = ("constants", "sorted", "shapes")
ENSURES: tuple[str, ...] = ("constants",)

LIMIT = 1 << 20
"""Bytes to which a result may grow beyond its inputs (an Expand of one number stays an Expand)."""

Array = np.ndarray[Any, Any]


def _evaluate(node: ir.Node, inputs: list[Array | None], opset: int) -> list[Array] | None:
    if node.domain not in ("", "ai.onnx"):
        operator = operator_of(node)
        if operator is None or not (operator.pure and operator.deterministic):
            return None
        if any(p.optional or p.variadic for p in operator.signature.outputs):
            return None  # outputs and results do not go one to one
        result = operator(*inputs, **attributes_of(node, operator))
        return [np.asarray(r) for r in (result if isinstance(result, (tuple, list)) else [result])]
    proto = ir.to_proto(node)
    feeds = {f"{k}": a for k, a in enumerate(inputs) if a is not None}
    for name in feeds:
        proto.input[int(name)] = name  # values of different graphs may share a name
    graph_inputs = [onnx.helper.make_value_info(str(n), onnx.TypeProto()) for n in feeds]
    outputs = [onnx.helper.make_value_info(str(o.name), onnx.TypeProto()) for o in node.outputs if o.name]
    graph = onnx.helper.make_graph([proto], "fold", graph_inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in ReferenceEvaluator(model).run(None, feeds)]
    except (NotImplementedError, TypeError, RuntimeError):
        return None  # the reference has a gap: the node is computed at run time
    except (ValueError, IndexError) as error:
        raise ArgumentError(
            f"a constant expression is wrong: {error}",
            where=f"node {node.name!r} ({node.op_type})",
            got={n: a.shape for n, a in feeds.items()},
        ) from error


def _known(node: ir.Node) -> list[Array] | None:
    known = node.outputs[0].meta.get("known") if len(node.outputs) == 1 else None
    if known is None or any(d.constant is None for d in known):
        return None
    dtype, dims = node.outputs[0].dtype, dims_of(node.outputs[0])
    if dtype is None or dims is None:
        return None
    return [np.array([d.constant for d in known], dtype.numpy()).reshape((-1,) if dims else ())]


def _fold(node: ir.Node, opset: int) -> list[Array] | None:
    if node.op_type in IMPURE or any(
        a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()
    ):
        return None
    if any(o.type is not None and not isinstance(o.type, ir.TensorType) for o in node.outputs):
        return None  # there are no constant sequences
    if node.op_type == "DequantizeLinear":
        return None  # small weights stay small until the products have had their choice
    if (ready := _known(node)) is not None:
        return ready
    inputs = [_edit.array(v) for v in node.inputs]
    if not inputs or any(v is not None and a is None for v, a in zip(node.inputs, inputs, strict=True)):
        return None
    if any(a is not None and a.dtype == object for a in inputs):
        return None
    grow = LIMIT + 2 * sum(a.nbytes for a in inputs if a is not None)
    dims = dims_of(node.outputs[0])
    if dims is not None and all(d.constant is not None for d in dims):
        count = 1
        for d in dims:
            count *= d.constant or 0
        if count * 8 > 4 * grow:
            return None
    results = _evaluate(node, inputs, opset)
    return None if results is None or sum(r.nbytes for r in results) > grow else results


def call(model: ir.Model) -> int:
    """Fold in schedule order, so that chains collapse in one go."""
    count = 0
    opset = model.opset_imports.get("", 1)
    for node in _edit.nodes(model):
        results = _fold(node, opset)
        if results is None:
            continue
        for old, data in zip(node.outputs, results, strict=True):
            if not old.uses() and not old.is_graph_output():
                continue
            value = _edit.add_constant(model.graph, data, f"{old.name}__folded")
            if old.is_graph_output():
                identity = _edit.insert_before(node, ir.Node("", "Identity", [value], num_outputs=1))
                _edit.set_meta(identity.outputs[0], old)
                value = identity.outputs[0]
            _edit.replace_value(old, value)
        _edit.drop_if_unused(node)
        count += 1
    return count
