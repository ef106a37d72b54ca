"""The report: results of the other commands as one page, and the same for machines (JUnit XML, JSON, Markdown)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from opforge._files import whole_file
from opforge.errors import ArgumentError
from opforge.report._html import to_html
from opforge.report._junit import to_junit
from opforge.report._markdown import to_markdown
from opforge.report._memory_plan import mib
from opforge.report._memory_plan import picture as memory_picture
from opforge.report._model import Check, Report, Section
from opforge.report._provenance import provenance
from opforge.report.sections import KINDS, Kind, kind_of

__all__ = [
    "FORMATS",
    "KINDS",
    "Check",
    "Report",
    "Section",
    "adapted",
    "memory_picture",
    "mib",
    "missing",
    "name_origins",
    "provenance",
    "read_results",
    "to_html",
    "to_json",
    "to_junit",
    "to_markdown",
    "write",
]

_FORM = 1


def adapted(content: Any, where: str) -> Section:  # noqa: ANN401 - parsed JSON
    """Turn what a command printed with ``--json`` into a section.

    Raises:
        ArgumentError: no command prints such.
    """
    kind = kind_of(content)
    if kind is None:
        raise ArgumentError(
            "no command prints such JSON",
            where=where,
            expected="what --json prints of " + ", ".join(KINDS),
            got=", ".join(map(repr, list(content)[:8])) if isinstance(content, dict) else type(content).__name__,
        )
    try:
        return kind.adapt(content)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as problem:
        raise ArgumentError(
            f"this looks like the JSON of opforge {kind.name}, but is not whole",
            where=where,
            got=f"{type(problem).__name__}: {problem}",
            hint=f"make it again: {kind.command}",
        ) from problem


def missing(kind: Kind, why: str) -> Section:
    """Return a section that says why it is not there."""
    return Section(kind.name, kind.title, "missing", f"{why.rstrip(' .')}. To get it: {kind.command}")


def name_origins(contents: Iterable[Any]) -> None:
    """Write beside the names of original nodes that a .bin keeps which operators these are.

    The .bin knows names only; where the .onnx was inspected too (``--nodes``), its nodes of these names say the rest.

    Args:
        contents: parsed JSON of all commands; those of ``opforge inspect`` of a .bin are changed.
    """
    inspected = [c for c in contents if isinstance(c, dict) and isinstance(c.get("nodes"), list)]
    names = {n["name"]: n["op"] for c in inspected for n in c["nodes"] if n.get("name") and "where" in n}
    for node in (node for content in inspected for node in content["nodes"] if node.get("origin")):
        if all(name in names for name in node["origin"]):
            node["origin_operators"] = [names[name] for name in node["origin"]]


def read_results(files: Iterable[Path]) -> tuple[list[tuple[str, Any]], list[dict[str, Any]]]:
    """Read JSON files of commands, and of earlier reports, whose results are taken out.

    Returns:
        The results with the file of each, and the commands that an earlier report lists.

    Raises:
        ArgumentError: a file cannot be read, or is no JSON.
    """
    results: list[tuple[str, Any]] = []
    commands: list[dict[str, Any]] = []
    for path in files:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as problem:
            raise ArgumentError("the file cannot be read", where=str(path), got=problem.strerror) from None
        except ValueError as problem:
            hint = "give what a command printed with --json, whole"
            raise ArgumentError("this is no JSON file", where=str(path), got=str(problem), hint=hint) from None
        if isinstance(content, dict) and content.get("report") == _FORM:
            results += [(str(path), part["content"]) for part in content["sections"] if part["content"] is not None]
            commands += content["provenance"].get("commands", [])
        else:
            results.append((str(path), content))
    return results, commands


def to_json(report: Report) -> str:
    """Return the report as JSON; `read_results` reads it."""
    sections = [
        {
            "kind": s.kind,
            "title": s.title,
            "state": s.state,
            "summary": s.summary,
            "checks": [vars(check) for check in s.checks],
            "content": s.content,
        }
        for s in report.sections
    ]
    content: Mapping[str, Any] = {
        "report": _FORM,
        "subject": report.subject,
        "passed": report.passed,
        "verdict": report.word,
        "summary": report.sentence(),
        "sections": sections,
        "provenance": report.provenance,
    }
    return json.dumps(content, indent=1) + "\n"


FORMATS: Mapping[str, Callable[[Report], str]] = {
    ".html": to_html,
    ".xml": to_junit,
    ".json": to_json,
    ".md": to_markdown,
}
"""What a file's suffix asks for."""


def write(report: Report, path: Path) -> None:
    """Write the report in the form that the suffix asks for.

    Raises:
        ArgumentError: no form has this suffix.
    """
    form = FORMATS.get(path.suffix)
    if form is None:
        raise ArgumentError("no form of a report", where=str(path), expected=", ".join(FORMATS), got=path.suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        temporary.write_text(form(report), encoding="utf-8", errors="backslashreplace")  # names of files are bytes
