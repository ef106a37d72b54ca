"""ONNX: completing, checking, simplifying models that hold custom operators."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opforge.onnx.checker import Problem as Problem
    from opforge.onnx.checker import check_model as check_model
    from opforge.onnx.functions import complete_model as complete_model
    from opforge.onnx.inline import inline_functions as inline_functions
    from opforge.onnx.one_node import one_node_model as one_node_model
    from opforge.onnx.raising import raise_formulas as raise_formulas
    from opforge.onnx.repair import repair_domains as repair_domains
    from opforge.onnx.shapes import infer_shapes as infer_shapes
    from opforge.onnx.simplification import simplify as simplify

_NAMES = {
    "Problem": "checker",
    "check_model": "checker",
    "complete_model": "functions",
    "infer_shapes": "shapes",
    "inline_functions": "inline",
    "one_node_model": "one_node",
    "raise_formulas": "raising",
    "repair_domains": "repair",
    "simplify": "simplification",
}

__all__ = [
    "Problem",
    "check_model",
    "complete_model",
    "infer_shapes",
    "inline_functions",
    "one_node_model",
    "raise_formulas",
    "repair_domains",
    "simplify",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a lazy module attribute can be anything
    if name in _NAMES:
        value = getattr(import_module(f"opforge.onnx.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'opforge.onnx' has no attribute {name!r}")
