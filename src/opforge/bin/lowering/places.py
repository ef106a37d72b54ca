"""Where the nodes of a model come from: modules and source lines, as exporters write them into the model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

import onnx_ir as ir

from opforge.bin.program import Place, Program

__all__ = ["keep_names", "names_of", "place_of", "places_of"]

_SCOPES, _TRACE = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+)', re.MULTILINE)
_OTHERS = re.compile(r"(site-packages|dist-packages|src)/(torch|onnxscript|opforge)/")
"""Packages whose lines say nothing of the model."""


def names_of(model: ir.Model) -> set[str]:
    """Return the names of all nodes (or of their first outputs), as ``Node.origin`` has them."""
    return {name for name, _ in _nodes(model)}


def places_of(model: ir.Model) -> dict[str, Place]:
    """Return the place of each node that has one, by its name."""
    found = {name: place_of(name, node.metadata_props) for name, node in _nodes(model)}
    return {name: place for name, place in found.items() if name and place != Place()}


def keep_names(program: Program, names: set[str]) -> None:
    """Leave out of the origins what graph passes called their own nodes, where a node of the model is named too."""
    for graph in program.graphs:
        for node in graph.nodes:
            node.origin = [name for name in node.origin if name in names] or node.origin


def _nodes(model: ir.Model) -> Iterator[tuple[str, ir.Node]]:
    roots = (model.graph, *(function.graph for function in model.functions.values()))
    graphs = [*roots, *(inner for root in roots for inner in root.subgraphs())]
    for graph in graphs:
        for node in graph:
            yield node.name or (node.outputs[0].name if node.outputs else "") or "", node


def place_of(name: str, metadata: Mapping[str, str]) -> Place:
    """Read what PyTorch's exporter left at a node; else the name tells the module, as ``/encoder/fc/MatMul`` does."""
    scope = ""
    if _SCOPES in metadata:
        try:
            scopes = ast.literal_eval(metadata[_SCOPES])  # the list of the modules around, then the node
        except (ValueError, SyntaxError):
            scopes = []
        scope = next((str(s) for s in reversed(scopes[:-1]) if s), "") if isinstance(scopes, list) else ""
    elif "/" in name:
        scope = ".".join(part for part in name.split("/")[:-1] if part)
    return Place(scope, _source(metadata.get(_TRACE, "")))


def _source(trace: str) -> str:
    """Return the innermost line of the model's author as ``folder/file.py:12``.

    Folders further out differ from machine to machine and tell more than a model should.
    """
    frames = _FRAME.findall(trace)
    own = [frame for frame in frames if not _OTHERS.search(frame[0])]
    if not own:
        return ""
    file, line = own[-1]
    return f"{'/'.join(PurePath(file).parts[-2:]).lstrip('/')}:{line}"
