"""``opforge stress``: the verdicts, latency, memory over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opforge.report._charts import Axis, Line, chart
from opforge.report._model import Block, Cell, Check, Column, Figure, Listing, Section, Table
from opforge.report.sections._words import first_line, mark

__all__ = ["section"]

_MIB = 1 << 20
_STATES = {True: "passed", False: "failed", None: "left out"}


def section(content: Mapping[str, Any]) -> Section:
    """Make the section."""
    by = content["engine"] or content["host"]
    seconds = sum(content["seconds"].values())
    bad = [verdict for verdict in content["verdicts"] if verdict["passed"] is False]
    summary = f"{content['runs']} calls in {seconds:.0f} s by {content['threads']} callers in {by}: "
    summary += "; ".join(first_line(verdict["words"]) for verdict in bad) if bad else "no fault found"
    summary += f" (ended early by {content['interrupted']})" if content["interrupted"] else ""
    verdicts = [(v["check"], mark(v["passed"]), v["words"], v["detail"]) for v in content["verdicts"]]
    columns = [Column(name) for name in ("question", "verdict", "answer", "detail")]
    blocks: list[Block] = [Table("Verdicts", columns, verdicts)]
    for failure in content["failures"]:
        text = f"case {failure['case']}: {failure['text']}"
        if failure["npz"]:
            text += f"\n\nto repeat it:\n{failure['reproduce']}"
        blocks.append(Listing(f"First {failure['kind']}", text))
    blocks += [*_latency(content), *_memory(content)]
    if content["cases"]:
        blocks.append(_cases(content))
    checks = [Check(v["check"], _STATES[v["passed"]], f"{v['words']}; {v['detail']}") for v in content["verdicts"]]
    state = "passed" if content["passed"] else "failed"
    return Section("stress", "Stress", state, summary + ".", checks, blocks, content)


def _latency(content: Mapping[str, Any]) -> list[Block]:
    parts = {name: content[name] for name in ("alone", "together") if content.get(name) and content[name]["runs"]}
    if not parts:
        return []
    words = {"alone": "one caller", "together": f"{content['threads']} callers"}
    names = list(dict.fromkeys(key for part in parts.values() for key in part["latency_ms"]))
    columns = [Column("callers"), Column("calls", True), *(Column(f"{name} ms", True) for name in names)]
    rows = [(words[k], part["runs"], *(part["latency_ms"][name] for name in names)) for k, part in parts.items()]
    lines = [
        Line(words[k], [(value, 100 * share) for value, share in part["steps_ms"]], {"alone": "second"}.get(k, "ours"))
        for k, part in parts.items()
    ]
    drawn = chart(Axis("ms a call", logarithmic=True), Axis("% of calls that take no longer", low=0, high=100), lines)
    note = "Each caller calls again as soon as its call ends; a histogram keeps every call to three digits."
    return [
        Table("Latency", columns, rows, note),
        Figure("Latency, cumulative", drawn, "How many calls take no longer than so many milliseconds."),
    ]


def _memory(content: Mapping[str, Any]) -> list[Block]:
    samples = content["memory"].get("samples_bytes", [])
    if len(samples) < 2:
        return []
    lines = [Line("RSS", [(at, resident / _MIB) for at, resident, _ in samples])]
    shared = [(at, share / _MIB) for at, _, share in samples if share]
    if shared:
        lines.append(Line("PSS", shared, "second"))
    low = min(y for line in lines for _, y in line.points)
    high = max(y for line in lines for _, y in line.points)
    room = max(1.0, (high - low) * 0.2)
    drawn = chart(Axis("seconds"), Axis("MiB", low=max(0.0, low - room), high=high + room), lines)
    words = next((v["words"] for v in content["verdicts"] if v["check"] == "memory"), "")
    return [Figure("Memory of the process", drawn, f"{words}. The verdict leaves out the first quarter as warm-up.")]


def _cases(content: Mapping[str, Any]) -> Table:
    columns = [Column("case"), Column("calls", True), Column("alone p50 ms", True), Column("p50 ms", True),
               Column("p99 ms", True), Column("other results", True)]  # fmt: skip
    rows = []
    for case in content["cases"]:
        alone, together = case.get("alone", {}), case.get("together", {})
        differ = case["mismatches"]
        rows.append(
            (
                case["name"],
                alone.get("runs", 0) + together.get("runs", 0),
                alone.get("p50_ms"),
                together.get("p50_ms"),
                together.get("p99_ms"),
                Cell(str(differ), "bad" if differ else "", differ),
            )
        )
    return Table("Cases", columns, rows, folded=True)
