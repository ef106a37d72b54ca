"""The model is written in one recent opset, so that everything behind it knows one form of each operator."""

from __future__ import annotations

from collections import defaultdict

import onnx
import onnx_ir as ir

from opforge.errors import ArgumentError, OpforgeError, UnsupportedError
from opforge.passes import _edit, infer_shapes
from opforge.passes._opset_rules import RULES
from opforge.passes._upgrade import TARGET, Rule

__all__ = ["ENSURES", "NAME", "OLDEST", "REQUIRES", "TARGET", "call"]

NAME = "upgrade_opset"
REQUIRES: tuple[str, ...] = ("constants", "no_functions", "sorted")
ENSURES: tuple[str, ...] = ("shapes",)

OLDEST = 1


def _by_operator() -> dict[str, list[tuple[int, Rule]]]:
    found: dict[str, list[tuple[int, Rule]]] = defaultdict(list)
    for (name, changed), rule in sorted(RULES.items(), key=lambda row: row[0][1]):
        found[name].append((changed, rule))
    return found


_ROWS = _by_operator()


def _upgrade(node: ir.Node, version: int) -> tuple[list[ir.Node], int]:
    """Return what stands for a node in the target opset, in order, and how many rules applied."""
    if node.domain not in ("", "ai.onnx"):
        return [node], 0
    version = version if node.version is None else node.version
    node.domain, node.version = "", None
    row = next(((c, rule) for c, rule in _ROWS.get(node.op_type, ()) if c > version), None)
    if row is None:
        return [node], 0
    changed, rule = row
    try:
        made, count = rule(node) or [node], 1
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        if isinstance(error, OpforgeError):
            raise
        raise ArgumentError(
            "the node is not as its operator set has it",
            where=f"node {node.name or (node.outputs[0].name if node.outputs else '')!r} ({node.op_type})",
            expected=f"the inputs and attributes of {node.op_type} in opset {version}",
            got=f"{type(error).__name__}: {error}",
        ) from error
    out = []
    for one in made:
        nodes, applied = _upgrade(one, changed)
        out += nodes
        count += applied
    return out, count


def _graph(graph: ir.Graph, version: int, target: int) -> int:
    """Upgrade in schedule order; each node sees the shapes of its inputs."""
    count = 0
    infer_shapes.begin(graph)
    for node in list(graph):
        written = node.version if node.version is not None and node.domain in ("", "ai.onnx") else version
        nodes, applied = _upgrade(node, version)
        count += applied
        for one in nodes:
            count += sum(_graph(inner, written, target) for inner in _edit.subgraphs(one))
            infer_shapes.infer_node(one, target)
    return count


def call(model: ir.Model) -> int:
    """Rewrite every standard node that changed its form, and infer shapes; a newer model keeps its opset.

    Nodes that came from functions of another opset carry that version themselves.
    """
    version = model.opset_imports.get("", model.opset_imports.get("ai.onnx", TARGET))
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= version <= newest:
        raise UnsupportedError(
            "the model's opset is not known",
            expected=f"opset {OLDEST} to {newest}",
            got=version,
            hint="install a newer onnx, or export the model for an older opset" if version > newest else None,
        )
    target = max(version, TARGET)
    model.opset_imports.pop("ai.onnx", None)
    model.opset_imports[""] = target
    count = _graph(model.graph, version, target)
    for node in _edit.nodes(model):
        if node.domain in ("", "ai.onnx"):
            node.domain, node.version = "", None
    return count
