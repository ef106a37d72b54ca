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
_NAMED = 3


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
    blocks += _engines(content)
    blocks.append(_nodes(nodes))
    return Section("profile", "Where the time goes", "info", summary + ".", (), blocks, content)


def _advice(rows: Sequence[Mapping[str, Any]]) -> list[Block]:
    """One row per rule and hint, since alike layers of a model stand out alike; the nodes share the row."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["rule"], row["hint"]), []).append(row)
    if not groups:
        return []
    lines = []
    for (rule, hint), group in groups.items():
        where = [row["where"] for row in group if row["where"]]
        shown = ", ".join(where[:_NAMED]) + (f" and {len(where) - _NAMED} more" if len(where) > _NAMED else "")
        lines.append((rule, group[0]["text"], shown or "the model", hint))
    return [Table("What stands out", [Column(name) for name in ("rule", "found", "where", "to do")], lines)]


def _engines(content: Mapping[str, Any]) -> list[Block]:
    """The nodes of several engines side by side, where they stand for the same nodes of the model."""
    groups: Sequence[Mapping[str, Any]] = content.get("side_by_side", [])
    if not groups:
        return []
    names = list(groups[0]["run_ns"])
    columns = [Column("nodes of the model"), *(Column(f"{name} µs", True) for name in names)]
    columns += [Column(f"in {name}") for name in names]
    rows = [
        [
            ", ".join(group["members"]) or "the engine's own",
            *(group["run_ns"][name] / 1e3 for name in names),
            *(", ".join(group["nodes"][name]) for name in names),
        ]
        for group in groups
    ]
    return [Table("Engines side by side", columns, rows, "Time of a run in the same nodes of the model.", folded=True)]


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
    lines: list[Line] = []
    words = "Each node by its work per byte and the speed it reaches; the larger, the more of the time."
    speed = number((machine or {}).get("flops_per_s")) / 1e9
    copies = [(int(size), number(rate) / 1e9) for size, rate in (machine or {}).get("copies", [])]
    if copies and speed > 0:
        (small, cached), (_, memory) = copies[0], copies[-1]
        left = min(min(p.x for p in points), speed / cached / 10)
        right = max(max(p.x for p in points), speed / memory * 10)
        for name, rate, style in ((f"cache ({small >> 10} KiB)", cached, "soft"), ("memory", memory, "second")):
            lines.append(Line(name, [(left, left * rate), (speed / rate, speed), (right, speed)], style))
        words += (
            f" The roofs are measured here: {memory:.3g} GB/s from memory, {cached:.3g} GB/s from the first cache, "
            f"{speed:.3g} GFLOP/s."
        )
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
