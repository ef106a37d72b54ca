"""The report as Markdown for the summary of a CI job: the verdict, a table of parts, what failed, short tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opforge.report._model import STATES, Bars, Report, Section, Table, value_text

__all__ = ["to_markdown"]

_ROWS = 12
"""Rows of a table that are shown; the page has them all."""
_SIGNS = {"passed": ":white_check_mark:", "failed": ":x:", "info": ":page_facing_up:", "missing": ":grey_question:"}


def to_markdown(report: Report) -> str:
    """Return the Markdown."""
    lines = [f"## {_SIGNS['failed' if report.failed else 'passed' if report.passed else 'missing']} {report.word}: "
             f"{_escape(report.subject)}", "", _escape(report.sentence()), ""]  # fmt: skip
    lines += ["| part | verdict | in short |", "|---|---|---|"]
    for section in report.sections:
        lines.append(f"| {_escape(section.title)} | {_SIGNS[section.state]} {STATES[section.state]} | "
                     f"{_escape(section.summary)} |")  # fmt: skip
    for section in report.failed:
        lines += ["", f"### {_escape(section.title)}", ""]
        failed = [check for check in section.checks if check.state == "failed"]
        lines += [f"- **{_escape(check.name)}**: {_escape(check.detail)}" for check in failed[:_ROWS]]
        if len(failed) > _ROWS:
            lines.append(f"- and {len(failed) - _ROWS} more")
    for section in report.sections:
        lines += _tables(section)
    machine = report.provenance.get("machine", {})
    if machine:
        lines += ["", f"{report.provenance['made']}, opforge {report.provenance['versions']['opforge']}, "
                  f"{_escape(machine['processor'])}, {_escape(machine['cores'])}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _tables(section: Section) -> Iterator[str]:
    shown = [block for block in section.blocks if isinstance(block, Bars) or (isinstance(block, Table) and block.rows)]
    shown = [block for block in shown if not (isinstance(block, Table) and block.folded)]
    if not shown:
        return
    yield from ("", f"<details><summary>{_escape(section.title)}</summary>")
    for block in shown:
        yield from ("", f"**{_escape(block.title)}**", "")
        if isinstance(block, Bars):
            heads, rows = ["what", block.unit], [[label, f"{value:.4g}"] for label, value, _ in block.rows]
        else:
            heads = [column.name for column in block.columns]
            rows = [[value_text(value) for value in row] for row in block.rows]
        yield f"| {' | '.join(map(_escape, heads))} |"
        yield "|" + "---|" * len(heads)
        for row in rows[:_ROWS]:
            yield f"| {' | '.join(map(_escape, row))} |"
        if len(rows) > _ROWS:
            yield from ("", f"{len(rows) - _ROWS} more rows are in the page.")
    yield from ("", "</details>")


def _escape(text: str) -> str:
    """Make text of others plain: no HTML, no table cells, no emphasis, one line."""
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([|*_`\[\]\\])", r"\\\1", flat)
