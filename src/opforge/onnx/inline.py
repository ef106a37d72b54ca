"""Inline model-local functions, for engines that cannot read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["inline_functions"]


def inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of ``model`` in which every call of a model-local function is replaced by its body."""
    import onnx_ir as ir

    from opforge.onnx.simplification import drop_unused
    from opforge.passes import _well_formed
    from opforge.passes import inline_functions as inlining

    graph_model = _well_formed.from_proto(model)
    inlining.call(graph_model, bodies=True)
    result = ir.to_proto(graph_model)
    drop_unused(result)
    return result
