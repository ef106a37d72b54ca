"""``opforge profile``: time per operator and node, advice, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opforge.report._charts import Axis, Line, Point, chart
from opforge.report._model import Bars, Block, Cell, Column, Figure, Section, Table
from opforge.report.sections._words import counted, number

__all__ = ["section"]

_SHOWN = 12


def section(content: Mapping[str, Any]) -> Section:
    """Make the section."""
    operators: Sequence[Mapping[str, Any]] = content["operators"]
    nodes: Sequence[Mapping[str, Any]] = content["nodes"]
    run = (content["run_ns"] or {}).get("p50")
    summary = f"{Path(content['model']).name} in {content['engine']}: {counted(len(nodes), 'node')}"
    summary += f", {run / 1e6:.4g} ms a run" if run else ""
    if operators:
        summary += f", {100 * operators[0]['share']:.0f} % of it in {operators[0]['operator']}"
    moved = number(content.get("copy_share", 0)) + number(content.get("layout_share", 0))
    summary += f"; {100 * moved:.1f} % moves data only"
    bars = [(row["operator"], 100 * row["share"], row["moves"] == "") for row in operators[:_SHOWN]]
    note = "In grey what only moves data."
    blocks: list[Block] = [Bars("Time by operator", "% of the nodes' time", bars, note)]
    blocks += _advice(content.get("advice", []))
    blocks += _roofline(nodes, content.get("machine"))
    blocks.append(_nodes(nodes))
    return Section("profile", "Where the time goes", "info", summary + ".", (), blocks, content)


def _advice(rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not rows:
        return []
    heads = list(rows[0])
    lines = [[str(row.get(head, "")) for head in heads] for row in rows]
    return [Table("What stands out", [Column(head.replace("_", " ")) for head in heads], lines)]


def _roofline(nodes: Sequence[Mapping[str, Any]], machine: Mapping[str, Any] | None) -> list[Block]:
    known = [n for n in nodes if n.get("intensity") and n.get("gflops_per_s")]
    if not known:
        return []
    points = [
        Point(
            n["intensity"],
            n["gflops_per_s"],
            f"{n['operator']} {n['name']}: {n['gflops_per_s']:.3g} GFLOP/s, {100 * n['share']:.1f} % of the time",
            "ours",
            3.0 + 14.0 * n["share"] ** 0.5,
        )
        for n in known
    ]
    lines = []
    words = "Each node by its work per byte and the speed it reaches; the larger, the more of the time."
    bandwidth, speed = (number((machine or {}).get(key)) / 1e9 for key in ("bytes_per_s", "flops_per_s"))
    if bandwidth > 0 and speed > 0:
        ridge = speed / bandwidth
        left = min(min(p.x for p in points), ridge / 10)
        right = max(max(p.x for p in points), ridge * 10)
        lines = [Line("measured roof", [(left, left * bandwidth), (ridge, speed), (right, speed)], "second")]
        words += f" The roof is measured here: {bandwidth:.3g} GB/s and {speed:.3g} GFLOP/s."
    drawn = chart(Axis("operations per byte", logarithmic=True), Axis("GFLOP/s", logarithmic=True), lines, points)
    return [Figure("Roofline", drawn, words)]


def _nodes(nodes: Sequence[Mapping[str, Any]]) -> Table:
    heads = ("node", "operator", "calls", "share %", "mean µs", "p50 µs", "p99 µs", "GB/s", "GFLOP/s", "% of roof",
             "fused", "from")  # fmt: skip
    columns = [Column(head, figures=2 <= k <= 9) for k, head in enumerate(heads)]
    rows = []
    for n in sorted(nodes, key=lambda node: -node["share"]):
        roof = n.get("of_roof")
        rows.append(
            (
                n["name"], n["operator"], n["calls"], round(100 * n["share"], 2), n["mean_ns"] / 1e3,
                n["p50_ns"] / 1e3, n["p99_ns"] / 1e3, n.get("gbytes_per_s"), n.get("gflops_per_s"),
                None if roof is None else round(100 * roof, 1), n.get("fused", ""),
                Cell(", ".join(n.get("sources") or n.get("scopes") or n.get("members") or []), "quiet"),
            )
        )  # fmt: skip
    return Table("Nodes by time", columns, rows, folded=True)
