"""A comparison of engines for people: tables on the terminal, the same as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from opforge.cli._output import markdown, short_reason, table

if TYPE_CHECKING:
    from opforge.verify import Comparison
    from opforge.verify.bisection import Finding
    from opforge.verify.comparison import Row
    from opforge.verify.precision import Precision

__all__ = ["print_comparison", "write_markdown"]

_HEAD = (
    "engine", "output", "inputs", "max |error|", "mean |error|", "max relative", "ulp 50/99/100%", "cosine", "NaN/Inf",
    "allowed", "verdict",
)  # fmt: skip
_NODE = ("node", "operator", "dtype")


def _title(result: Comparison) -> str:
    limits = {str(row.limit) for row in result.rows}
    allowed = f", allowed |error| <= {limits.pop()}" if len(limits) == 1 else ""
    return f"against {result.reference}{allowed}"


def _rows(result: Comparison) -> Iterator[Sequence[object]]:
    one_limit = len({str(row.limit) for row in result.rows}) == 1
    for row in result.rows:
        d = row.difference
        figures = [f"{v:.3g}" for v in (d.max_abs, d.mean_abs, d.max_rel)] if d.same_shape else ["", "", ""]
        counts = () if row.ulps is None else (row.ulps.median, row.ulps.p99, row.ulps.largest)
        units = "/".join(f"{v:.3g}" for v in counts)
        where = row.input_set if len(result.input_sets) > 1 else ""
        allowed = "" if one_limit else str(row.limit)
        cosine = f"{d.cosine:.9f}" if d.same_shape else ""
        verdict = "ok" if row.passed else "FAILED"
        yield (row.engine, row.output, where, *figures, units, cosine, _pattern(row), allowed, verdict)


def _pattern(row: Row) -> str:
    d = row.difference
    if not d.same_shape:
        return "other shape" if row.dtype else "missing"
    if row.dtype != row.expected_dtype and not row.passed and d.passed:
        return f"{row.dtype}, not {row.expected_dtype}"
    return "same" if d.same_pattern else f"{d.misplaced} DIFFER"


def _words(result: Comparison) -> Iterator[str]:
    for row in result.rows:
        if not row.passed:
            where = f", {row.input_set}" if len(result.input_sets) > 1 else ""
            yield f"FAILED {row.engine}, {row.output}{where}: {row.detail}"
    for name, how in result.crashed.items():
        yield f"FAILED {name}: {short_reason(name, how)}"
        yield from (line for line in how.splitlines() if line.startswith("  to do: "))
    for name, reason in result.skipped.items():
        yield f"left out {name}: {short_reason(name, reason)}"


def _nodes(found: Precision, count: int) -> tuple[list[str], list[Sequence[object]]]:
    """Heads and rows of the worst nodes: of one engine all figures, of several the errors of their own side by side."""
    engines = list(dict.fromkeys(row.engine for row in found.rows))
    if len(engines) < 2:
        rows: list[Sequence[object]] = []
        for row in found.worst(count):
            grown = row.amplification
            figures = (f"{row.roundings:.3g}", *(f"{v:.2g}" for v in (row.own, row.error, row.inputs)))
            rows.append((row.node, row.operator, row.dtype, *figures, "" if grown is None else f"{grown:.3g}"))
        return [*_NODE, "roundings", "own error", "whole error", "of inputs", "amplified"], rows
    by_value = {(row.value, row.engine): row for row in found.rows}
    worst = dict.fromkeys(row.value for row in found.worst(len(found.rows)))
    side_by_side: list[Sequence[object]] = []
    for value in list(worst)[:count]:
        cells = [by_value.get((value, engine)) for engine in engines]
        first = next(cell for cell in cells if cell is not None)
        own = ("" if cell is None else f"{cell.roundings:.3g}" for cell in cells)
        side_by_side.append((first.node, first.operator, first.dtype, *own))
    return [*_NODE, *engines], side_by_side


def _node_words(found: Precision) -> Iterator[str]:
    for name, change in found.changed.items():
        yield f"{name}: with every value marked as an output its results change by {change:.2g}: it fuses otherwise"
    for name, reason in found.skipped.items():
        yield f"without figures, {name}: {short_reason(name, reason)}"


def _nodes_title(count: int) -> str:
    return f"the {count} nodes with the largest errors of their own against float64, in roundings of the dtype"


def print_comparison(result: Comparison, findings: Sequence[Finding], precision: Precision | None, worst: int) -> None:
    """Print the table, what failed, and the searches' results."""
    if result.rows:
        table(_title(result), _HEAD, _rows(result))
    for line in _words(result):
        click.echo(line)
    for finding in findings:
        click.echo(f"first difference of {finding}")
    if precision is not None:
        heads, rows = _nodes(precision, worst)
        table(_nodes_title(len(rows)), heads, rows)
        for line in _node_words(precision):
            click.echo(line)


def write_markdown(
    model: str, result: Comparison, findings: Sequence[Finding], precision: Precision | None, worst: int
) -> str:
    """Write the same as Markdown."""
    parts = [f"# {model}\n"]
    if result.rows:
        parts += [_title(result).capitalize() + ".\n", markdown(_HEAD, _rows(result))]
    parts += ["\n".join(f"- {line}" for line in _words(result)) + "\n" if any(True for _ in _words(result)) else ""]
    if findings:
        parts.append("## First differences\n")
        parts += [f"```text\n{finding}\n```\n" for finding in findings]
    if precision is not None:
        heads, rows = _nodes(precision, worst)
        parts += ["## Precision\n", _nodes_title(len(rows)).capitalize() + ".\n", markdown(heads, rows)]
        parts += [f"{line}\n" for line in _node_words(precision)]
    return "\n".join(part for part in parts if part)
