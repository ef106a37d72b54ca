"""``opforge inspect --memory``: the plan of a run's memory, drawn, with its largest buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opforge.report._memory_plan import picture
from opforge.report._model import Block, Column, Figure, Section, Table
from opforge.report.sections._words import counted, megabytes, shape_text

__all__ = ["section"]


def section(content: Mapping[str, Any]) -> Section:
    """Make the section."""
    given = ", ".join(f"{name} {shape_text(shape)}" for name, shape in content["inputs"].items())
    summary = (
        f"Peak {megabytes(content['peak_bytes'])} for {given}: {content['ratio']:.3f} times the least that can be, and "
        f"{megabytes(content['no_reuse_bytes'])} without reuse; {counted(len(content['buffers']), 'buffer')}."
    )
    columns = [Column("first value"), Column("kind"), Column("node"), Column("bytes", True), Column("at", True),
               Column("from node", True), Column("to node", True)]  # fmt: skip
    rows = [
        (b["name"], b["kind"], b["node"], b["size"], b["offset"], b["first"], b["last"])
        for b in sorted(content["buffers"], key=lambda buffer: -buffer["size"])
    ]
    words = "Nodes to the right in the order of the run, bytes of the arena upwards."
    blocks: list[Block] = [
        Figure("Memory plan", picture(content), words),
        Table("Buffers", columns, rows, folded=True),
    ]
    if not rows:
        summary = f"A run with {given} needs no memory of its own: every result is an output."
        blocks = []
    return Section("memory", "Memory plan", "info", summary, (), blocks, content)
