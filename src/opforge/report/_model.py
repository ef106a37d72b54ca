"""What a report holds, before anything is drawn: sections with checks for machines and blocks for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "STATES",
    "Bars",
    "Block",
    "Cell",
    "Check",
    "Column",
    "Figure",
    "Listing",
    "Report",
    "Section",
    "Table",
    "Value",
    "value_text",
]

STATES = {"passed": "Passed", "failed": "Failed", "info": "Figures", "missing": "Not run"}
"""The states of a section, and the word that a person reads."""


@dataclass(frozen=True)
class Check:
    """One thing that passed, failed, or was left out; a test case of the JUnit file."""

    name: str
    state: str  # "passed", "failed", "left out"
    detail: str = ""


@dataclass(frozen=True)
class Cell:
    """A table's cell with a tone: "good", "bad", "warn", "quiet", or "heat0" to "heat5" from right to wrong.

    ``order`` is what the column is sorted by where it is not the text.
    """

    text: str
    tone: str = ""
    order: float | None = None


@dataclass(frozen=True)
class Column:
    """A table's column; figures stand to the right."""

    name: str
    figures: bool = False


Value = str | int | float | None | Cell


def value_text(value: Value) -> str:
    """Write a cell's value for people."""
    if isinstance(value, Cell):
        return value.text
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first cell of a row is its head."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Bars:
    """Lengths to compare: label, value, and whether it is ours."""

    title: str
    unit: str
    rows: Sequence[tuple[str, float, bool]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A drawing (SVG) with words that say what it shows."""

    title: str
    svg: str
    words: str
    tall: bool = False
    folded: bool = False


@dataclass(frozen=True)
class Listing:
    """Text as it stands, such as commands or a trace."""

    title: str
    text: str


Block = Table | Bars | Figure | Listing


@dataclass(frozen=True)
class Section:
    """One part of the report.

    Attributes:
        kind: the command that it comes from; see `opforge.report.KINDS`.
        title: for people.
        state: a key of ``STATES``.
        summary: one sentence; for a part that is missing, why, and how to get it.
        checks: for machines.
        blocks: for people.
        content: the JSON that it was made of; None where there is none.
    """

    kind: str
    title: str
    state: str
    summary: str
    checks: Sequence[Check] = ()
    blocks: Sequence[Block] = ()
    content: Any = None

    @property
    def anchor(self) -> str:
        """Name of the part within a page."""
        return "".join(c if c.isalnum() else "-" for c in f"{self.kind}-{self.title}".lower())


@dataclass(frozen=True)
class Report:
    """All sections, and what they were made with."""

    subject: str
    sections: Sequence[Section]
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> list[Section]:
        """The sections that failed."""
        return [section for section in self.sections if section.state == "failed"]

    @property
    def passed(self) -> bool:
        """Whether something was judged and nothing failed."""
        return not self.failed and any(section.state == "passed" for section in self.sections)

    @property
    def word(self) -> str:
        """The verdict: ``Passed``, ``Failed``, or ``Nothing was judged``."""
        return "Failed" if self.failed else "Passed" if self.passed else "Nothing was judged"

    def sentence(self) -> str:
        """Say what the verdict rests on."""
        checks = [check for section in self.sections for check in section.checks]
        counts = {s: sum(check.state == s for check in checks) for s in ("passed", "failed", "left out")}
        missing = [section.title for section in self.sections if section.state == "missing"]
        parts = [f"{counts['passed']} checks passed"]
        parts += [f"{counts['failed']} failed"] if counts["failed"] else []
        were = "was" if counts["left out"] == 1 else "were"
        parts += [f"{counts['left out']} {were} left out"] if counts["left out"] else []
        text = ", ".join(parts)
        return text + (f"; not run: {', '.join(missing)}" if missing else "") + "."
