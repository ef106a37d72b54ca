"""Shapes of all values of a model, through custom nodes by the operators' own shape rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["infer_shapes"]


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of ``model`` whose value_info holds dtype and shape of every value of the main graph.

    Custom nodes take part by the shape rule of their signature, so that inference goes on behind them; symbolic
    dimensions stay symbolic (``N``, ``2*N+1``). What cannot be known is left out.

    Raises:
        ArgumentError: the model contradicts itself (a conflicting dimension, a wrong rank).
    """
    import onnx
    import onnx_ir as ir

    from opforge.passes import infer_shapes as inference

    result = onnx.ModelProto()
    result.CopyFrom(model)
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    # A node with a body is a custom node here: its signature says more than its body.
    del bare.functions[:]
    # What an exporter guessed behind custom nodes (names of its own making) would hide what the rule says.
    del bare.graph.value_info[:]
    graph_model = ir.from_proto(bare)
    inference.call(graph_model)
    outputs = {item.name: item for item in result.graph.output}
    del result.graph.value_info[:]
    for node in graph_model.graph:
        for value in node.outputs:
            info = _value_info(value)
            if info is None or not value.name:
                continue
            if value.name in outputs:
                _fill(outputs[value.name], info)
            else:
                result.graph.value_info.append(info)
    return result


def _value_info(value: object) -> onnx.ValueInfoProto | None:
    import onnx

    if value.dtype is None or value.shape is None:  # type: ignore[attr-defined]
        return None
    dims = [d if isinstance(d, int) else d.value for d in value.shape]  # type: ignore[attr-defined]
    return onnx.helper.make_tensor_value_info(value.name, int(value.dtype), dims)  # type: ignore[attr-defined]


def _fill(output: onnx.ValueInfoProto, info: onnx.ValueInfoProto) -> None:
    """Add what the declared output lacks; what it says stays."""
    declared, known = output.type.tensor_type, info.type.tensor_type
    if not declared.elem_type:
        declared.elem_type = known.elem_type
    if not declared.HasField("shape"):
        declared.shape.CopyFrom(known.shape)
        return
    for mine, theirs in zip(declared.shape.dim, known.shape.dim, strict=False):
        if not mine.HasField("dim_value") and not mine.dim_param:
            mine.CopyFrom(theirs)
