"""Scan becomes Loop: a slice of each scanned input per iteration, outputs turned to their axis and order afterwards.

One kind of loop is enough for the runtime, its verifier and everything that looks into bodies; a slice costs one small
copy per iteration. The form of opset 8, with a batch, is a loop over the batch around it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opforge.errors import UnsupportedError
from opforge.passes import _edit
from opforge.passes._control_shapes import body_of
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "Writer", "call", "loop_input", "lower_batched", "place_loop"]

NAME = "lower_scan"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()

LAST = np.iinfo(np.int64).min
"""End of a slice that runs backwards over all."""


class Writer:
    """Adds nodes before an anchor, or at the end of a graph without one; ``name`` begins the names of values."""

    def __init__(self, graph: ir.Graph, anchor: ir.Node | None, name: str) -> None:
        self.graph, self.anchor, self.name, self.made = graph, anchor, name, 0

    def op(self, op_type: str, inputs: Sequence[ir.Value | None], **attributes: object) -> ir.Value:
        """Add a node of one output."""
        attrs = ir.convenience.convert_attributes({k: v for k, v in attributes.items()})  # type: ignore[misc]
        node = ir.Node("", op_type, inputs, attrs, num_outputs=1, name=self.name)
        node.outputs[0].name = f"{self.name}__{op_type}_{self.made}"
        self.made += 1
        if self.anchor is not None:
            self.graph.insert_before(self.anchor, node)
        else:
            self.graph.append(node)
        return node.outputs[0]

    def numbers(self, values: int | list[int]) -> ir.Value:
        """Add integers as a constant."""
        return _edit.add_constant(self.graph, np.array(values, np.int64), f"{self.name}__scan")

    def length(self, value: ir.Value, axis: int) -> ir.Value:
        """Return the size of an axis as a scalar."""
        return self.op("Gather", [self.op("Shape", [value]), self.numbers(axis)], axis=0)


def loop_input(name: str, dtype: ir.DataType) -> ir.Value:
    """Return the counter or the condition of a body."""
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([]))


def place_loop(
    outer: Writer, count: ir.Value, initial: Sequence[ir.Value | None], body: ir.Graph, outputs: int, name: str | None
) -> ir.Node:
    """Put a Loop that runs ``count`` times before the writer's anchor."""
    attrs = [ir.AttrGraph("body", body)]
    node = ir.Node("", "Loop", [count, None, *initial], attrs, num_outputs=outputs, name=name)
    assert outer.anchor is not None
    return _edit.insert_before(outer.anchor, node)


def _lower(node: ir.Node) -> None:
    graph, body = node.graph, body_of(node)
    assert isinstance(graph, ir.Graph)
    name = node.name or node.outputs[0].name or "scan"
    scanned = int(_edit.attribute(node, "num_scan_inputs", 0))
    states = len(node.inputs) - scanned
    outer, inner = Writer(graph, node, name), Writer(body, next(iter(body), None), name)
    axes = _edit.attribute(node, "scan_input_axes") or [0] * scanned
    backwards = _edit.attribute(node, "scan_input_directions") or [0] * scanned
    sources = [v for v in node.inputs[states:] if v is not None]
    count = outer.length(sources[0], axes[0])
    index = loop_input(f"{name}__index", ir.DataType.INT64)
    keep = loop_input(f"{name}__keep", ir.DataType.BOOL)
    slices = body.inputs[states:]
    rest = list(body.inputs[:states])
    body.inputs.clear()
    body.inputs.extend([index, keep, *rest])
    for value, source, axis, back in zip(slices, sources, axes, backwards, strict=True):
        position = index
        if back:
            last = inner.op("Sub", [count, inner.numbers(1)])
            position = inner.op("Sub", [last, index])
        _edit.replace_value(value, inner.op("Gather", [source, position], axis=axis))
    results = list(body.outputs)
    going = Writer(body, None, f"{name}__go").op("Identity", [keep])
    going.type = keep.type
    body.outputs.clear()
    body.outputs.extend([going, *results])
    loop = place_loop(outer, count, list(node.inputs[:states]), body, len(node.outputs), node.name)
    _turn(node, loop, outer, states, results)
    graph.remove(node, safe=True)


def _turn(node: ir.Node, loop: ir.Node, outer: Writer, states: int, results: list[ir.Value]) -> None:
    """Bring the loop's outputs into the order and to the axis of the Scan's."""
    scan_outputs = len(node.outputs) - states
    axes = _edit.attribute(node, "scan_output_axes") or [0] * scan_outputs
    backwards = _edit.attribute(node, "scan_output_directions") or [0] * scan_outputs
    for k, (old, new) in enumerate(zip(node.outputs, loop.outputs, strict=True)):
        new.name, new.type = f"{old.name}__loop", old.type
        value = new
        if k >= states and backwards[k - states]:
            value = outer.op("Slice", [value, *(outer.numbers([n]) for n in (-1, LAST, 0, -1))])
        if k >= states and axes[k - states] != 0:
            dims = dims_of(results[k])
            if dims is None:
                raise UnsupportedError(
                    "a Scan stacks along an axis of values whose rank is not known",
                    where=f"node {node.name!r} (Scan)",
                    expected="scan_output_axes of 0, or a body whose output has a rank",
                    got=f"axis {axes[k - states]}",
                )
            rank = len(dims) + 1
            order = list(range(1, rank))
            order.insert(axes[k - states] % rank, 0)
            value = outer.op("Transpose", [value], perm=order)
        value.type = old.type
        _edit.replace_value(old, value)


def lower_batched(node: ir.Node) -> None:
    """Write the Scan of opset 8 as a Loop over the batch whose body is the Scan of opset 9.

    Raises:
        UnsupportedError: the sequences of a batch have lengths of their own.
    """
    graph, body = node.graph, body_of(node)
    assert isinstance(graph, ir.Graph)
    if node.inputs[0] is not None:
        raise UnsupportedError(
            "a Scan of opset 8 whose sequences differ in length is not supported",
            where=f"node {node.name!r} (Scan)",
            expected="no sequence_lens",
            hint="export the model with opset 9 or later",
        )
    name = node.name or node.outputs[0].name or "scan"
    scanned = int(_edit.attribute(node, "num_scan_inputs", 0))
    states = len(node.inputs) - 1 - scanned
    outer = Writer(graph, node, f"{name}__batch")
    sources = [v for v in node.inputs[1:] if v is not None]
    index = loop_input(f"{name}__row", ir.DataType.INT64)
    keep = loop_input(f"{name}__rows", ir.DataType.BOOL)
    around = ir.Graph([index, keep], [], nodes=[], name=f"{name}__batch", opset_imports=dict(graph.opset_imports))
    inner = Writer(around, None, f"{name}__row")
    rows = [inner.op("Gather", [source, index], axis=0) for source in sources]
    attrs = [ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", scanned)]
    directions = _edit.attribute(node, "directions")
    if directions:
        attrs.append(ir.AttrInt64s("scan_input_directions", directions))
    scan = ir.Node("", "Scan", rows, attrs, num_outputs=len(node.outputs), name=name)
    around.append(scan)
    going = inner.op("Identity", [keep])
    going.type = keep.type
    for value, result in zip(scan.outputs, body.outputs, strict=True):
        value.name = f"{name}__{result.name}"
    around.outputs.extend([going, *scan.outputs])
    count = outer.length(sources[0], 0)
    node.attributes.pop("body")
    loop = place_loop(outer, count, [], around, len(node.outputs), node.name)
    for old, new in zip(node.outputs, loop.outputs, strict=True):
        new.name, new.type = f"{old.name}__loop", old.type
        _edit.replace_value(old, new)
    graph.remove(node, safe=True)
    assert states >= 0


def call(model: ir.Model) -> int:
    """Lower every Scan, the inner ones too."""
    count = 0
    for node in _edit.nodes(model):
        if _edit.is_op(node, "Scan") and node.graph is not None:
            _lower(node)
            count += 1
    return count
