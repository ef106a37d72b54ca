"""A program that is emitted reads nothing but what is computed before: the compiler's own check of its work."""

from __future__ import annotations

from opforge.bin.program import Graph, Program
from opforge.errors import InternalError

__all__ = ["require_order"]


def require_order(program: Program) -> None:
    """Raise InternalError for a node or an output that reads a value before it exists."""
    constants = {k for k, value in enumerate(program.values) if value.data is not None}
    for graph in program.graphs:
        known = constants | {*graph.inputs, *graph.captures}
        for node in graph.nodes:
            for k, index in enumerate(node.inputs):
                if index >= 0 and index not in known:
                    raise _unknown(
                        program, graph, index, f"node {', '.join(node.origin) or '?'} ({node.op}), input {k}"
                    )
            known.update(index for index in node.outputs if index >= 0)
        for index in graph.outputs:
            if index not in known:
                raise _unknown(program, graph, index, "output")


def _unknown(program: Program, graph: Graph, index: int, reader: str) -> InternalError:
    return InternalError(
        "the compiler made a program that reads a value which is not computed",
        where=f"graph {graph.name!r}, {reader}",
        expected="an input, a constant or the result of an earlier node",
        got=repr(program.values[index].name),
        hint="this is a fault of opforge: report it with the model",
    )
