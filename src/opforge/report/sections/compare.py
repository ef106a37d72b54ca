"""``opforge compare``: how far the engines are apart, as a map of outputs and engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opforge.report._model import Block, Cell, Check, Column, Section, Table
from opforge.report.sections._words import counted, heat, left_out, mark, number

__all__ = ["section"]


def section(content: Mapping[str, Any]) -> Section:
    """Make the section."""
    rows: Sequence[Mapping[str, Any]] = content["rows"]
    bad = [row for row in rows if not row["passed"]]
    crashed: Mapping[str, str] = content.get("crashed", {})
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    summary = f"{', '.join(engines) or 'no engine'} against {content['reference']}: "
    summary += (
        f"{len(bad)} of {counted(len(rows), 'output')} differ" if bad else "every output is within what is allowed"
    )
    summary += f"; crashed: {', '.join(crashed)}" if crashed else ""
    blocks: list[Block] = [_map(rows, engines, content), _figures(rows)]
    if content["skipped"]:
        shown = list(content["skipped"].items())
        blocks.append(Table("Engines left out", [Column("engine"), Column("why")], shown, folded=True))
    checks = [
        Check(f"{row['engine']} · {row['output']}", "passed" if row["passed"] else "failed", _detail(row, content))
        for row in rows
    ]
    checks += [Check(name, "failed", how) for name, how in crashed.items()] + left_out(content["skipped"])
    state = "passed" if content["passed"] else "failed"
    return Section("compare", "Engines agree", state, summary + ".", checks, blocks, content)


def _detail(row: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    if row["passed"]:
        return ""
    return str(row.get("detail") or f"max |error| {row['max_abs']} against {content['reference']}")


def _share(row: Mapping[str, Any], content: Mapping[str, Any]) -> float:
    """The error's share of what is allowed; without the command's own figure, what it is at most."""
    if "margin" in row:
        return number(row["margin"])
    error, allowed = number(row["max_abs"]), number(row.get("atol") or content.get("atol"))
    most = error / allowed if allowed > 0 else 0.0 if error == 0 else 1.0
    return min(most, 1.0) if row["passed"] else max(most, 2.0)


def _map(rows: Sequence[Mapping[str, Any]], engines: Sequence[str], content: Mapping[str, Any]) -> Table:
    outputs = list(dict.fromkeys(row["output"] for row in rows))
    found = {(row["output"], row["engine"]): row for row in rows}
    lines: list[list[Any]] = []
    for output in outputs:
        cells: list[Any] = [output]
        for engine in engines:
            row = found.get((output, engine))
            if row is None:
                cells.append(Cell("-", "quiet"))
            elif not row["same_shape"]:
                cells.append(Cell("other shape", "bad", 1e300))
            else:
                cells.append(heat(_share(row, content), f"{number(row['max_abs']):.2g}"))
        lines.append(cells)
    columns = [Column("output"), *(Column(engine, figures=True) for engine in engines)]
    note = (
        "Largest |error| of each output; the colour is its share of what is allowed, from green (none) to red (over)."
    )
    return Table("Map of errors", columns, lines, note)


def _figures(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = [
        Column("engine"), Column("output"), Column("dtype"), Column("max |error|", True), Column("mean |error|", True),
        Column("max relative", True), Column("cosine", True), Column("NaN/Inf"), Column("verdict"),
    ]  # fmt: skip
    lines = [
        (
            row["engine"], row["output"], row.get("dtype", ""), number(row["max_abs"]), number(row["mean_abs"]),
            number(row["max_rel"]), Cell(f"{number(row['cosine']):.9f}", order=number(row["cosine"])),
            "same" if row["same_pattern"] else Cell("DIFFERENT", "bad"), mark(row["passed"]),
        )
        for row in rows
    ]  # fmt: skip
    return Table("Figures of each output", columns, lines, folded=True)
