"""Function bodies of operators that ONNX defines in words only, or whose own body does not serve the runtime.

Each module has ``BODIES``: (domain, operator) -> a function that writes the body of one node, or gives None where the
node needs none. What a body is made of has kernels, or bodies in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

from opforge.bin.lowering.bodies import einsum, encoders, learning, microsoft, norms, optimizers, quantised, standard
from opforge.bin.lowering.bodies._writer import Body

__all__ = ["BODIES", "DOMAINS", "body_of"]

Rule = Callable[[Body, ir.Node], "list[str] | None"]

BODIES: Mapping[tuple[str, str], Rule] = {
    key: rule
    for module in (standard, norms, einsum, optimizers, learning, encoders, quantised, microsoft)
    for key, rule in module.BODIES.items()
}
"""All rules."""

DOMAINS = frozenset(domain for domain, _ in BODIES if domain)
"""Domains other than the main one: ONNX's, and that of ONNX Runtime's quantiser."""


def _key(node: ir.Node) -> tuple[str, str]:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type)


def body_of(node: ir.Node) -> onnx.FunctionProto | None:
    """Write the body of a node with the inputs that it has; None where it needs none."""
    rule = BODIES.get(_key(node))
    if rule is None:
        return None
    body = Body(node)
    outputs = rule(body, node)
    return None if outputs is None else body.function(outputs)
