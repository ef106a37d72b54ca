"""``opforge check``: the matrix of operators and hosts, what failed, and how much of each kind was checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opforge.report._model import Block, Cell, Check, Column, Section, Table, Value
from opforge.report.sections._words import counted, first_line, mark, subject_name

__all__ = ["section"]

_SHOWN = 200
_FEW = 8


def section(content: Mapping[str, Any]) -> Section:
    """Make the section."""
    reports: Sequence[Mapping[str, Any]] = content["reports"]
    rows = [(report, row) for report in reports for row in report["rows"]]
    failures = [(report, row) for report, row in rows if not row["passed"]]
    left = [(report, row) for report, row in rows if _left_out(row)]
    levels = sorted({report["level"] for report in reports})
    subjects = subject_name(reports[0]["subject"]) if len(reports) == 1 else counted(len(reports), "subject")
    summary = f"{counted(len(rows) - len(left), 'check')} of {subjects} at the level {', '.join(levels)}"
    summary += f", {len(failures)} failed" if failures else ", all passed"
    blocks: list[Block] = [_matrix(reports), _kinds(reports)]
    if failures:
        blocks.insert(0, _failures(failures))
    if left:
        shown = [(subject_name(report["subject"]), row["host"] or row["check"], row["detail"]) for report, row in left]
        blocks.append(Table("Left out", _columns("subject", "where", "why"), shown, folded=True))
    state = "passed" if content["passed"] else "failed"
    return Section("check", "Checks", state, summary + ".", _checks(rows), blocks, content)


def _left_out(row: Mapping[str, Any]) -> bool:
    return row["case"] == "left out" or row.get("state") == "left out"


def _columns(*names: str) -> list[Column]:
    return [Column(name) for name in names]


def _host(row: Mapping[str, Any]) -> str:
    return row["host"] or "itself"


def _matrix(reports: Sequence[Mapping[str, Any]]) -> Table:
    hosts = _ordered(_host(row) for report in reports for row in report["rows"])
    names = [subject_name(report["subject"]) for report in reports]
    cells = [[_cell([row for row in report["rows"] if _host(row) == host]) for host in hosts] for report in reports]
    if len(reports) > 1:
        hosts = ["verdict", *hosts]
        cells = [[mark(report["passed"]), *row] for report, row in zip(reports, cells, strict=True)]
    note = "How many checks passed in each host; “itself” is what needs none, such as the declaration."
    if len(hosts) > len(reports):  # the longer side downwards, so that it is seen whole
        turned: list[list[Value]] = [[host, *(row[k] for row in cells)] for k, host in enumerate(hosts)]
        return Table("Operators and hosts", _columns("host", *names), turned, note)
    rows: list[list[Value]] = [[name, *row] for name, row in zip(names, cells, strict=True)]
    return Table("Operators and hosts", _columns("subject", *hosts), rows, note)


def _cell(rows: Sequence[Mapping[str, Any]]) -> Cell:
    real = [row for row in rows if not _left_out(row)]
    if not real:
        return Cell("left out" if rows else "-", "quiet", -1.0)
    good = sum(bool(row["passed"]) for row in real)
    tone = "good" if good == len(real) else "bad"
    words = f"{good}" if tone == "good" else f"{len(real) - good} of {len(real)} FAILED"
    return Cell(words, tone, good / len(real))


def _kinds(reports: Sequence[Mapping[str, Any]]) -> Table:
    kinds: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for report in reports:
        for row in report["rows"]:
            if not _left_out(row):
                kinds[row["check"]] += 1
                bad[row["check"]] += not row["passed"]
    rows = [(kind, count, mark(not bad[kind])) for kind, count in kinds.most_common()]
    return Table(
        "What was checked",
        [Column("check"), Column("how often", True), Column("verdict")],
        rows,
        folded=len(rows) > _FEW,
    )


def _failures(failures: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Table:
    rows = [
        (subject_name(report["subject"]), row["check"], row["case"], row["host"], row["dtype"], row["detail"])
        for report, row in failures[:_SHOWN]
    ]
    note = f"The first {_SHOWN} of {len(failures)}." if len(failures) > _SHOWN else ""
    return Table("What failed", _columns("subject", "check", "case", "host", "dtype", "why"), rows, note)


def _checks(rows: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[Check]:
    found = []
    for report, row in rows:
        parts = (subject_name(report["subject"]), row["check"], row["case"], row["host"], row["dtype"])
        state = "left out" if _left_out(row) else "passed" if row["passed"] else "failed"
        found.append(Check(" · ".join(part for part in parts if part), state, first_line(row["detail"], 2000)))
    return found


def _ordered(names: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(names))
    return sorted(found, key=lambda name: (name != "itself", name != "numpy", found.index(name)))
