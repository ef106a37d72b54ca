"""The model is written in one recent opset, so that everything behind it knows one form of each operator."""

from __future__ import annotations

import onnx_ir as ir

from opforge.errors import UnsupportedError
from opforge.passes import _edit
from opforge.passes._opset_rules import RULES

__all__ = ["ENSURES", "NAME", "OLDEST", "REQUIRES", "TARGET", "call"]

NAME = "upgrade_opset"
REQUIRES: tuple[str, ...] = ("constants", "no_functions")
ENSURES: tuple[str, ...] = ()

OLDEST, TARGET = 7, 24


def call(model: ir.Model) -> int:
    """Rewrite every standard node that changed its form; a newer model keeps its opset."""
    version = model.opset_imports.get("", model.opset_imports.get("ai.onnx", TARGET))
    if version < OLDEST:
        raise UnsupportedError("the model's opset is too old", expected=f"opset {OLDEST} or later", got=version)
    count = 0
    for (name, changed), rule in sorted(RULES.items(), key=lambda row: row[0][1]):
        if version >= changed:
            continue
        for node in _edit.nodes(model):
            if _edit.is_op(node, name):
                rule(node)
                count += 1
    model.opset_imports.pop("ai.onnx", None)
    model.opset_imports[""] = max(version, TARGET)
    for node in _edit.nodes(model):
        if _edit.is_op(node, node.op_type):
            node.version = None
            node.domain = ""
    return count
