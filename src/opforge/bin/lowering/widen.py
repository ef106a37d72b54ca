"""Half-precision models run in f32: what a node computes is rounded to its half type and kept as f32.

So every kernel and every fusion for f32 serves half types too, and no pass over a tensor only converts it: a rounding
is a conversion to the half type and back, which fusion puts behind the product or among the elementwise operators that
it follows. Inputs, outputs and constants keep their type, and so does what only moves such values (a table of
embeddings). A model of elementwise operators alone stays as it is: one formula reads and writes half types.
"""

from __future__ import annotations

import onnx_ir as ir

from opforge.bin.lowering._generated.kernels import KERNELS
from opforge.expr import Program
from opforge.passes import _edit
from opforge.passes._operators import ELEMENTWISE, operator_of

__all__ = ["KEEP", "widen_halves"]

HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

MOVES = frozenset(
    """
    Compress Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity NonZero Pad Reshape
    ReverseSequence Scatter ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze TensorScatter Tile
    Transpose Trilu Unsqueeze
    """.split()
)
"""Operators that move elements of any type."""

KEEP = MOVES | frozenset(
    "BitCast Cast CastLike ConstantOfShape DequantizeLinear EyeLike QLinearMatMul QuantizeLinear".split()
)
"""Operators whose kernels read and write half types."""

KEEPS_HALF = frozenset(
    """
    Abs Ceil Clip Floor GlobalMaxPool Max MaxPool Min Neg ReduceMax ReduceMin Relu Round Sign Where
    """.split()
)
"""Operators that give values of a half type where they get such values."""


def _is_half(value: ir.Value | None) -> bool:
    return value is not None and value.dtype in HALVES


class _Widening:
    """Walks through a model; `made` are the half values that nodes compute, `wide` the f32 ones with their numbers."""

    def __init__(self) -> None:
        self.made: set[ir.Value] = set()
        self.wide: dict[ir.Value, ir.Value] = {}

    def visit(self, node: ir.Node) -> bool:
        """Widen a node where that is called for; tell whether it is one that has no kernel for half types."""
        if not any(map(_is_half, (*node.inputs, *node.outputs))):
            return False
        standard = node.domain in ("", "ai.onnx")
        if standard and node.op_type in MOVES:
            if self.moves_made(node):
                self.widen(node, exact=True)
        elif standard and node.op_type == "Cast":
            if node.inputs[0] in self.wide:
                node.replace_input_with(0, self.wide[node.inputs[0]])
            self.made.update(filter(_is_half, node.outputs))
        elif computes(node) or is_elementwise(node):
            kernel = not is_elementwise(node)
            self.widen(node, exact=standard and node.op_type in KEEPS_HALF)
            return kernel
        return False

    def moves_made(self, node: ir.Node) -> bool:
        """Tell whether all that a node moves was computed; what lies in inputs and constants is not widened first."""
        if _edit.attribute(node, "reduction", "none") != "none":
            return False
        given = [v for v in node.inputs if v is not None and _is_half(v) and _edit.array(v) is None]
        return bool(given) and all(v in self.made for v in given)

    def widen(self, node: ir.Node, *, exact: bool) -> None:
        for k, value in enumerate(node.inputs):
            if value is not None and _is_half(value):
                node.replace_input_with(k, self.wide_of(value))
        for key in ("dtype", "output_datatype"):
            if _edit.attribute(node, key) in HALVES:
                node.attributes[key] = ir.AttrInt64(key, int(ir.DataType.FLOAT))
        for output in node.outputs:
            if not _is_half(output):
                continue
            narrow = output.dtype
            assert narrow is not None
            readers = list(output.uses())
            result = _cast(output, narrow)
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
            self.made.add(result)
            if exact:
                self.wide[result] = output

    def wide_of(self, value: ir.Value) -> ir.Value:
        if value not in self.wide:
            self.wide[value] = _cast(value, ir.DataType.FLOAT)
        return self.wide[value]


def _cast(value: ir.Value, to: ir.DataType) -> ir.Value:
    """Convert a value where it begins."""
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(to))], num_outputs=1)
    made, graph = value.producer(), value.graph
    if made is not None and made.graph is not None:
        made.graph.insert_after(made, node)
    else:
        assert isinstance(graph, ir.Graph)
        graph.insert_before(graph[0], node)
    result = node.outputs[0]
    result.type, result.shape = ir.TensorType(to), value.shape
    result.name = f"{value.name}__{to.name}"
    return result


def computes(node: ir.Node) -> bool:
    """Tell whether a standard node has a kernel, for f32 only."""
    standard = node.domain in ("", "ai.onnx") and node.op_type not in KEEP and node.op_type not in ELEMENTWISE
    return standard and (("", node.op_type) in KERNELS or ("opforge", node.op_type) in KERNELS)


def is_elementwise(node: ir.Node) -> bool:
    """Tell whether a node becomes bytecode; formulas that round inside to their own type stay with that type."""
    if node.domain in ("", "ai.onnx"):
        return node.op_type in ELEMENTWISE
    operator = operator_of(node)
    if operator is None or operator.formula is None or len(node.outputs) != 1:
        return False
    program: Program = operator.formula.program()  # type: ignore[attr-defined]
    return all(i.op != "round_half" for i in program.instructions)


def widen_halves(model: ir.Model) -> list[str]:
    """Widen; return one line for each node that has no kernel for half types."""
    nodes, lines, widening = _edit.nodes(model), [], _Widening()
    if not any(computes(n) and any(map(_is_half, (*n.inputs, *n.outputs))) for n in nodes):
        return []
    for node in nodes:
        narrow = [v.dtype.name.lower() for v in (*node.inputs, *node.outputs) if v is not None and v.dtype in HALVES]
        if widening.visit(node):
            lines.append(f"{narrow[0]} -> f32 and back: {node.op_type} {node.name or node.outputs[0].name}")
    return lines
