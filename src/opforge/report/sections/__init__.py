"""Adapters: one module per command, which turns the JSON that the command prints into a section.

``KINDS`` is the table of them, in the order of the page. A command whose JSON is not there is a section that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opforge.report._model import Section
from opforge.report.sections import bench, check, compare, inspect, memory, profile, stress, suite

__all__ = ["KINDS", "Kind", "kind_of"]


@dataclass(frozen=True)
class Kind:
    """A kind of result.

    Attributes:
        name: the command's.
        title: of the section.
        keys: what the JSON of the command has at its top, by which it is known.
        adapt: makes the section.
        command: how a user gets the JSON, for the words of a part that is missing.
    """

    name: str
    title: str
    keys: frozenset[str]
    adapt: Callable[[Any], Section]
    command: str


def _row(name: str, title: str, keys: str, adapt: Callable[[Any], Section], command: str) -> Kind:
    return Kind(name, title, frozenset(keys.split()), adapt, command)


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        _row("check", "Checks", "passed reports", check.section, "opforge check TARGET --json"),
        _row("compare", "Engines agree", "reference rows skipped", compare.section, "opforge compare MODEL --json"),
        _row("bench", "Latency", "rounds rows model", bench.section, "opforge bench MODEL --json"),
        _row("suite", "Benchmarks", "suite", suite.section, "make bench"),
        _row("profile", "Where the time goes", "engine nodes operators run_ns", profile.section,
             "opforge profile MODEL --json"),
        _row("stress", "Stress", "stress verdicts", stress.section, "opforge stress TARGET --json"),
        _row("inspect", "The model", "file size operators nodes", inspect.section,
             "opforge inspect MODEL --nodes --json"),
        _row("memory", "Memory plan", "file buffers peak_bytes", memory.section,
             "opforge inspect MODEL.bin --memory --json"),
    )
}  # fmt: skip
"""Name to kind; a file belongs to the first whose keys it has all of."""


def kind_of(content: Any) -> Kind | None:  # noqa: ANN401 - parsed JSON
    """Return the kind of a parsed JSON file; None where no command prints such."""
    if isinstance(content, list):
        return KINDS["suite"] if content and isinstance(content[0], dict) and "peer_value" in content[0] else None
    if not isinstance(content, dict):
        return None
    fitting = [kind for kind in KINDS.values() if kind.keys <= content.keys()]
    return max(fitting, key=lambda kind: len(kind.keys), default=None)
