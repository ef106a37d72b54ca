"""Subgraphs in one form: what leaves them is made inside, no two values share a name, every name is known.

ONNX lets a branch give an outer value, an initializer or one of its own inputs, and lets names shadow outer ones. After
this pass an Identity stands where a value only passes through, so that passes may rewrite a subgraph like the main
graph.
"""

from __future__ import annotations

import onnx_ir as ir

from opforge.errors import ArgumentError, UnsupportedError
from opforge.passes import _edit

__all__ = ["ENSURES", "MAX_NESTING", "NAME", "REQUIRES", "call"]

NAME = "close_subgraphs"
REQUIRES: tuple[str, ...] = ()
ENSURES: tuple[str, ...] = ()

MAX_NESTING = 64
"""Subgraphs within subgraphs, as in runtime/format/FORMAT.md."""

Scope = dict[str, ir.Value]


def _is_dangling(value: ir.Value) -> bool:
    return value.producer() is None and not value.is_graph_input() and not value.is_initializer()


def _unknown(value: ir.Value, where: str, scopes: list[Scope]) -> ArgumentError:
    from opforge.schema import registry

    near = registry.nearest(value.name or "", sorted({name for scope in scopes for name in scope}))
    return ArgumentError(
        "the model reads a value that nothing gives",
        where=where,
        expected="an input, an initializer or the output of a node of this graph or of one around it",
        got=repr(value.name or ""),
        hint=f"did you mean {near!r}?" if near else None,
    )


def _pass_on(graph: ir.Graph, position: int, source: ir.Value, declared: ir.Value) -> None:
    """Let output ``position`` of a graph be a copy of ``source``."""
    identity = ir.Node("", "Identity", [source], num_outputs=1)
    graph.append(identity)
    copy = identity.outputs[0]
    copy.name = f"{declared.name}__out"
    copy.type = declared.type if declared.type is not None else source.type
    copy.shape = declared.shape if declared.shape is not None else source.shape
    graph.outputs[position] = copy


def _close(graph: ir.Graph, outer: list[Scope], holder: ir.Node | None) -> int:
    if len(outer) > MAX_NESTING:
        raise UnsupportedError("subgraphs are nested too deep", expected=f"at most {MAX_NESTING} levels")
    own: Scope = {v.name: v for v in (*graph.inputs, *graph.initializers.values()) if v.name}
    own.update({v.name: v for node in graph for v in node.outputs if v.name})
    scopes = [*outer, own]
    count = 0
    for node in list(graph):
        for value in node.inputs:
            if value is not None and _is_dangling(value):
                raise _unknown(value, f"node {node.name or node.outputs[0].name!r} ({node.op_type})", scopes)
        for inner in _edit.subgraphs(node):
            count += _close(inner, scopes, node)
    if holder is None:
        return count
    seen: set[ir.Value] = set()
    for position, value in enumerate(list(graph.outputs)):
        source = value
        if _is_dangling(value):
            found = [scope[value.name] for scope in reversed(outer) if value.name in scope]
            if not found:
                raise _unknown(value, f"a subgraph of node {holder.name!r} ({holder.op_type})", scopes)
            source = found[0]
        elif value.producer() is not None and value not in seen:
            seen.add(value)
            continue
        _pass_on(graph, position, source, value)
        count += 1
    return count


def _rename(model: ir.Model) -> int:
    """Give values of subgraphs names of their own."""
    taken: set[str] = set()
    count = 0
    for graph in _edit.graphs(model):
        main = graph is model.graph
        values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
        for value in dict.fromkeys(values):
            name = value.name or ""
            if name and name in taken and not main:
                value.name = _free(name, taken)
                count += 1
            taken.add(value.name or "")
    return count


def _free(name: str, taken: set[str]) -> str:
    k = 1
    while f"{name}__{k}" in taken:
        k += 1
    return f"{name}__{k}"


def call(model: ir.Model) -> int:
    """Close the subgraphs of the main graph and of functions.

    Raises:
        ArgumentError: a node or a subgraph's output names a value that is nowhere.
        UnsupportedError: subgraphs are nested deeper than `MAX_NESTING`.
    """
    count = sum(_close(root, [], None) for root in (model.graph, *(f.graph for f in model.functions.values())))
    for graph in model.graph.subgraphs():
        graph.opset_imports.update(model.opset_imports)  # which version of an operator a node inside means
    return count + _rename(model)
