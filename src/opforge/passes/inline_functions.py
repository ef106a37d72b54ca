"""Calls of model-local functions are replaced by their bodies, except those of registered operators."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from opforge.schema import registry

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "inline_functions"
REQUIRES: tuple[str, ...] = ()
ENSURES: tuple[str, ...] = ("no_functions",)


def _carry_versions(model: ir.Model, function: ir.Function) -> None:
    """Let the nodes of a body of another opset say so themselves, since afterwards they stand in the model's graph."""
    for domain, version in list(function.opset_imports.items()):
        own = model.opset_imports.get(domain)
        if own is None or own == version:
            continue
        for node in function.all_nodes():
            if node.domain == domain and node.version is None:
                node.version = version
        function.opset_imports[domain] = own


def call(model: ir.Model, *, bodies: bool = False) -> int:
    """Inline; with ``bodies`` also the functions of registered operators.

    A function that stays a call of a registered operator is dropped: the operator's declaration replaces its body.
    """
    kept = [] if bodies else [key for key in model.functions if registry.find(key[0], key[1]) is not None]
    for key in kept:
        del model.functions[key]
    if not model.functions:
        return len(kept)
    count = len(model.functions)
    for function in model.functions.values():
        _carry_versions(model, function)
    InlinePass()(model)
    model.functions.clear()
    return count + len(kept)
