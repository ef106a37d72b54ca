"""What passes know about operators: names of elementwise ones, purity, and the registered operator behind a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from opforge.passes import _edit
from opforge.schema import Operator, registry

__all__ = ["ELEMENTWISE", "IMPURE", "OWN", "OWN_DOMAIN", "Undefined", "attributes_of", "operator_of", "undefined"]

ELEMENTWISE = frozenset(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip Cos Cosh Div
    Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual
    Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus
    Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
    """.split()
)
"""Standard operators whose output has the broadcast shape of their inputs."""

IMPURE = frozenset(
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike Dropout".split()
)
"""Standard operators that are never folded or shared."""


OWN_DOMAIN = "opforge"
OWN: dict[str, ir.DataType] = {"Lookup": ir.DataType.INT64}
"""Operators of the runtime that bodies use: the type of the result, whose shape is that of the first input."""


def operator_of(node: ir.Node) -> Operator | None:
    """Return the registered operator that a custom node means, in the version that the model imports.

    Only operators that are loaded count; ``opforge.schema.discover`` loads installed packages.
    """
    version = node.version
    graph = node.graph
    if version is None and graph is not None:
        version = graph.opset_imports.get(node.domain)
    return registry.find(node.domain, node.op_type, version)


@dataclass(frozen=True)
class Undefined:
    """A custom node that no registered operator is behind: its operator with the version, and the nearest known one."""

    node: ir.Node
    operator: str
    nearest: str | None


def undefined(model: ir.Model) -> Iterator[Undefined]:
    """Find the nodes of all graphs that name operators which are neither standard nor registered."""
    known = registry.operators(all_versions=True)
    for node in _edit.nodes(model):
        if node.domain in ("", "ai.onnx") or (node.domain == OWN_DOMAIN and node.op_type in OWN):
            continue
        version = node.version or model.opset_imports.get(node.domain)
        if registry.find(node.domain, node.op_type, version) is None:
            name = f"{node.domain}::{node.op_type}" + (f":{version}" if version is not None else "")
            yield Undefined(node, name, registry.nearest(name, known))


def attributes_of(node: ir.Node, operator: Operator) -> dict[str, Any]:
    """Return the node's attributes as the operator takes them: ONNX has no booleans."""
    kinds = {a.name: a.kind for a in operator.signature.attributes}
    given = {name: attr.value for name, attr in node.attributes.items()}
    given |= {name: bool(value) for name, value in given.items() if kinds.get(name) == "bool"}
    return given | {name: [bool(v) for v in value] for name, value in given.items() if kinds.get(name) == "bools"}
