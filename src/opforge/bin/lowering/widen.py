"""Half-precision nodes whose kernels are for f32 compute in f32 between two conversions, rounding once at their result.

Elementwise nodes and those that only move data keep their type. The conversions are listed in the report.
"""

from __future__ import annotations

import onnx_ir as ir

from opforge.bin.lowering._generated.kernels import KERNELS
from opforge.passes import _edit
from opforge.passes._operators import ELEMENTWISE

__all__ = ["KEEP", "widen_halves"]

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

KEEP = frozenset(
    """
    Cast CastLike Concat ConstantOfShape DepthToSpace Expand Flatten Gather GatherElements GatherND Identity
    EyeLike NonZero Pad Reshape Scatter ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze Tile
    TensorScatter Transpose Trilu Unsqueeze Compress ReverseSequence
    BitCast DequantizeLinear QLinearMatMul QuantizeLinear
    """.split()
)
"""Operators that move elements of any type."""


def _is_half(value: ir.Value | None) -> bool:
    return value is not None and value.dtype in HALVES


def _cast(value: ir.Value, to: ir.DataType, anchor: ir.Node, *, after: bool = False) -> ir.Node:
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(to))], num_outputs=1)
    assert anchor.graph is not None
    (anchor.graph.insert_after if after else anchor.graph.insert_before)(anchor, node)
    node.outputs[0].type = ir.TensorType(to)
    node.outputs[0].shape = value.shape
    node.outputs[0].name = f"{value.name}__{to.name}_{anchor.name or anchor.op_type}"
    return node


def _widen(node: ir.Node) -> str:
    narrow = next(v.dtype for v in (*node.inputs, *node.outputs) if v is not None and v.dtype in HALVES)
    assert narrow is not None
    for k, value in enumerate(node.inputs):
        if value is not None and _is_half(value):
            node.replace_input_with(k, _cast(value, ir.DataType.FLOAT, node).outputs[0])
    for key in ("dtype", "output_datatype"):
        if key in node.attributes:
            node.attributes[key] = ir.AttrInt64(key, int(ir.DataType.FLOAT))
    for output in node.outputs:
        if not _is_half(output):
            continue
        readers = list(output.uses())
        back = _cast(output, narrow, node, after=True)
        result = back.outputs[0]
        for user, index in readers:
            user.replace_input_with(index, result)
        if output.is_graph_output():
            graph = node.graph
            assert isinstance(graph, ir.Graph)
            name, output.name = output.name, f"{output.name}__wide"
            result.name = name
            for k, value in enumerate(graph.outputs):
                if value is output:
                    graph.outputs[k] = result
        output.type = ir.TensorType(ir.DataType.FLOAT)
    return f"{narrow.name.lower()} -> f32 and back: {node.op_type} {node.name or node.outputs[0].name}"


def widen_halves(model: ir.Model) -> list[str]:
    """Insert the conversions; return one line for each node."""
    lines = []
    for node in _edit.nodes(model):
        if node.domain not in ("", "ai.onnx") or node.op_type in KEEP or node.op_type in ELEMENTWISE:
            continue
        known = ("", node.op_type) in KERNELS or ("opforge", node.op_type) in KERNELS
        if known and any(_is_half(v) for v in (*node.inputs, *node.outputs)):
            lines.append(_widen(node))
    return lines
