"""``opforge inspect``: inputs and outputs, operators, and the graph with custom and fused nodes marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opforge.report._graph import MOST_NODES, graph_picture, is_custom, node_kinds, operator_name
from opforge.report._model import Block, Cell, Check, Column, Figure, Section, Table
from opforge.report.sections._words import counted, megabytes, shape_text

__all__ = ["section"]


_FEW = 14


def section(content: Mapping[str, Any]) -> Section:
    """Make the section."""
    file = Path(content["file"])
    nodes: Sequence[Mapping[str, Any]] = content["nodes"]
    problems: Sequence[str] = content.get("problems", [])
    kinds = content["operators"]
    total = sum(kinds.values())
    custom = sum(count for name, count in kinds.items() if is_custom(name))
    custom = custom or sum("custom" in node_kinds(node) for node in nodes)
    fused = sum("fused" in node_kinds(node) for node in nodes)
    summary = f"{file.name}: {megabytes(content['size'])}, {counted(total, 'node')}"
    summary += f", {custom} with operators of domains of their own" if custom else ""
    summary += f", {fused} made from several" if fused else ""
    blocks: list[Block] = []
    if problems:
        blocks.append(Table("Problems", [Column("problem")], [(problem,) for problem in problems]))
    values = [
        (side, v["name"], v["dtype"], shape_text(v["shape"]))
        for side, key in (("input", "inputs"), ("output", "outputs"))
        for v in content[key]
    ]
    columns = [Column(name) for name in ("side", "name", "dtype", "shape")]
    blocks.append(Table("Inputs and outputs", columns, values))
    columns = [Column("operator"), Column("nodes", True)]
    blocks.append(Table("Operators", columns, list(kinds.items()), folded=len(kinds) > _FEW))
    blocks += _graph(nodes)
    checks = [Check("valid", "failed" if problems else "passed", "; ".join(problems))]
    state = "failed" if problems else "info"
    return Section("inspect", f"The model {file.name}", state, summary + ".", checks, blocks, content)


def _graph(nodes: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not nodes:
        return []
    main = [node for node in nodes if node.get("graph", node.get("where", "")) == _place(nodes[0])]
    rows = []
    for k, node in enumerate(nodes):
        marks = node_kinds(node)
        kind = Cell(" and ".join(marks), "warn" if marks else "")
        made = ", ".join(node.get("origin_operators") or node.get("origin", ()))
        rows.append((k, operator_name(node), kind, made, ", ".join(filter(None, node["outputs"]))))
    columns = [Column("node", True), *(Column(n) for n in ("operator", "marked", "made from", "outputs"))]
    words = (
        "Top to bottom in the order of the run; ◆ is an operator of a domain of its own, ⊕ was made from several nodes."
    )
    if len(main) > MOST_NODES:
        words += f" The first {MOST_NODES} of {len(main)} nodes."
    return [
        Figure("Graph", graph_picture(main), words, tall=True, folded="where" in nodes[0]),
        Table("Nodes", columns, rows, folded=True),
    ]


def _place(node: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return node.get("graph", node.get("where", ""))
