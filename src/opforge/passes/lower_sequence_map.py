"""SequenceMap becomes a Loop that appends to one sequence per output, which the runtime does in place."""

from __future__ import annotations

import onnx_ir as ir

from opforge.errors import UnsupportedError
from opforge.passes import _edit
from opforge.passes._control_shapes import body_of
from opforge.passes.lower_scan import Writer, loop_input, place_loop

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "lower_sequence_map"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _lower(node: ir.Node) -> None:
    graph, body = node.graph, body_of(node)
    assert isinstance(graph, ir.Graph)
    name = node.name or node.outputs[0].name or "map"
    outer, inner = Writer(graph, node, name), Writer(body, next(iter(body), None), name)
    results = list(body.outputs)
    starts = []
    for value in results:
        if value.dtype is None:
            raise UnsupportedError(
                "a SequenceMap gives values of a type that is not known", where=f"node {node.name!r} (SequenceMap)"
            )
        starts.append(outer.op("SequenceEmpty", [], dtype=int(value.dtype)))
        starts[-1].type = ir.SequenceType(ir.TensorType(value.dtype))
    index, keep = loop_input(f"{name}__index", ir.DataType.INT64), loop_input(f"{name}__keep", ir.DataType.BOOL)
    parts = list(body.inputs)
    body.inputs.clear()
    for k, (value, source) in enumerate(zip(parts, node.inputs, strict=True)):
        assert source is not None
        whole = k > 0 and not isinstance(source.type, ir.SequenceType)
        _edit.replace_value(value, source if whole else inner.op("SequenceAt", [source, index]))
    grown = [ir.Value(name=f"{name}__grown_{k}", type=start.type) for k, start in enumerate(starts)]
    body.inputs.extend([index, keep, *grown])
    writer = Writer(body, None, f"{name}__next")
    going = writer.op("Identity", [keep])
    going.type = keep.type
    appended = [writer.op("SequenceInsert", [old, new]) for old, new in zip(grown, results, strict=True)]
    for new, start in zip(appended, starts, strict=True):
        new.type = start.type
    body.outputs.clear()
    body.outputs.extend([going, *appended])
    count = outer.op("SequenceLength", [node.inputs[0]])
    loop = place_loop(outer, count, starts, body, len(node.outputs), node.name)
    for old, new in zip(node.outputs, loop.outputs, strict=True):
        new.name, new.type = f"{old.name}__loop", old.type
        _edit.replace_value(old, new)
    graph.remove(node, safe=True)


def call(model: ir.Model) -> int:
    """Lower every SequenceMap, the inner ones too."""
    count = 0
    for node in _edit.nodes(model):
        if _edit.is_op(node, "SequenceMap") and node.graph is not None:
            _lower(node)
            count += 1
    return count
