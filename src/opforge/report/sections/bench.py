"""``opforge bench``: latency in each engine, as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opforge.report._model import Bars, Block, Column, Section, Table
from opforge.report.sections._words import counted, left_out

__all__ = ["section"]


def section(content: Mapping[str, Any]) -> Section:
    """Make the section."""
    rows: Sequence[Mapping[str, Any]] = content["rows"]
    fastest = min(rows, key=lambda row: row["median_ms"])
    summary = f"Fastest is {fastest['engine']} with {fastest['median_ms']:.4g} ms, of {counted(len(rows), 'engine')}."
    ours = next((row for row in rows if row["engine"] == "opforge"), None)
    others = [row for row in rows if row is not ours]
    if ours is not None and others:
        best = min(others, key=lambda row: row["median_ms"])
        ratio = best["median_ms"] / ours["median_ms"]
        words = f"{ratio:.2f} times faster" if ratio >= 1 else f"{1 / ratio:.2f} times slower"
        summary += f" opforge is {words} than {best['engine']}, the best of the others."
    note = f"Medians of {content['rounds']} interleaved blocks; shorter is better."
    heads = ("engine", "load ms", "median ms", "best ms", "times the first", "max |difference|")
    columns = [Column(head, figures=k > 0) for k, head in enumerate(heads)]
    lines = [
        (r["engine"], r["load_ms"], r["median_ms"], r["best_ms"], round(1 / r["ratio"], 3), r["max_abs"]) for r in rows
    ]
    blocks: list[Block] = [
        Bars("Latency of a run", "ms", [(r["engine"], r["median_ms"], r["engine"] == "opforge") for r in rows], note),
        Table("Figures", columns, lines, folded=True),
    ]
    skipped = content.get("skipped", {})
    if skipped:
        blocks.append(Table("Engines left out", [Column("engine"), Column("why")], list(skipped.items()), folded=True))
    return Section("bench", "Latency", "info", summary, left_out(skipped), blocks, content)
