"""``build/bench/results.json``: the project's benchmarks against named peers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from opforge.report._model import Bars, Cell, Check, Column, Section, Table
from opforge.report.sections._words import counted

__all__ = ["section"]


def section(content: Sequence[Mapping[str, Any]]) -> Section:
    """Make the section."""
    short = [row for row in content if row.get("verdict") == "below"]
    peers: dict[str, list[float]] = {}
    for row in content:
        if row["ratio"] and row["ratio"] > 0:
            peers.setdefault(row["peer"], []).append(row["ratio"])
    means = {peer: math.exp(sum(map(math.log, ratios)) / len(ratios)) for peer, ratios in peers.items()}
    ahead = sum(bool(row["ratio"] and row["ratio"] >= 1) for row in content)
    summary = f"{ahead} of {counted(len(content), 'figure')} at least as good as the peer's"
    summary += f"; {len(short)} below their limit" if short else ""
    heads = ("case", "figure", "threads", "ours", "peer", "peer's", "ratio", "limit", "verdict")
    columns = [Column(head, figures=head in ("threads", "ours", "peer's", "ratio", "limit")) for head in heads]
    rows = [
        (
            r["case"], r["metric"], r["threads"], r["ours"], r["peer"], r["peer_value"],
            Cell(f"{r['ratio']:.2f}", "good" if r["ratio"] >= 1 else "warn", r["ratio"]), r.get("limit"),
            Cell("below", "bad") if r.get("verdict") == "below" else str(r.get("verdict") or ""),
        )
        for r in content
    ]  # fmt: skip
    checks = [
        Check(f"{r['case']} · {r['metric']} · {r['peer']}", "failed" if r.get("verdict") == "below" else "passed",
              f"ratio {r['ratio']:.3g}, limit {r['limit']}")
        for r in content
        if r.get("limit") is not None
    ]  # fmt: skip
    bars = Bars(
        "Geometric mean of the ratios to each peer",
        "times",
        sorted(((peer, mean, mean >= 1) for peer, mean in means.items()), key=lambda row: -row[1]),
        "Above 1 ours is better.",
    )
    state = "failed" if short else "passed" if checks else "info"
    return Section(
        "suite", "Benchmarks", state, summary + ".", checks, [bars, Table("All figures", columns, rows)], content
    )
