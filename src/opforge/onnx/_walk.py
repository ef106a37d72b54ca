"""Walking ModelProto: every node, also in subgraphs and function bodies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opforge.errors import ArgumentError

if TYPE_CHECKING:
    import onnx

__all__ = ["Place", "check_opset", "nodes", "opset_versions", "standard"]

_OLDEST = 11  # what the compiler upgrades from


@dataclass(frozen=True)
class Place:
    """A node and where it stands.

    Attributes:
        node: the node itself (not a copy).
        path: for people: ``graph``, ``graph/If_3.then_branch``, ``function com.example::F``.
        opsets: domain -> version that holds there.
    """

    node: onnx.NodeProto
    path: str
    opsets: dict[str, int]


def standard(domain: str) -> bool:
    """Whether the domain is one that ONNX itself defines."""
    return domain in {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training"}


def check_opset(version: int) -> int:
    """Return a version of the default domain that a model may be written with.

    Raises:
        ArgumentError: it is older than what opforge reads, or newer than the installed onnx knows.
    """
    from onnx.defs import onnx_opset_version

    newest = onnx_opset_version()
    if not _OLDEST <= version <= newest:
        raise ArgumentError("there is no such opset", where="opset", expected=f"{_OLDEST} to {newest}", got=version)
    return version


def opset_versions(holder: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """Return domain -> imported version; ``ai.onnx`` counts as the default domain."""
    return {("" if item.domain == "ai.onnx" else item.domain): item.version for item in holder.opset_import}


def nodes(model: onnx.ModelProto, *, functions: bool = True) -> Iterator[Place]:
    """Yield every node of the model's graph, its subgraphs and (by default) its functions."""
    yield from _graph(model.graph.node, "graph", opset_versions(model))
    if functions:
        for function in model.functions:
            yield from _graph(function.node, f"function {function.domain}::{function.name}", opset_versions(function))


def _graph(items: object, path: str, opsets: dict[str, int]) -> Iterator[Place]:
    for node in items:  # type: ignore[attr-defined]
        yield Place(node, path, opsets)
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for graph in graphs:
                yield from _graph(graph.node, f"{path}/{node.name or node.op_type}.{attribute.name}", opsets)
