"""The report as one HTML page: no network, readable without its script, for eyes, keyboards and screen readers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from opforge.report._model import (
    STATES,
    Bars,
    Block,
    Cell,
    Column,
    Figure,
    Listing,
    Report,
    Section,
    Table,
    Value,
    value_text,
)
from opforge.report._provenance import provenance_blocks

__all__ = ["to_html"]

_HERE = Path(__file__).parent
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_LONG = 48
"""Characters from which a cell takes a wide column."""


def to_html(report: Report) -> str:
    """Return the page."""
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    made = report.provenance.get("made", "")
    version = report.provenance.get("versions", {}).get("opforge", "")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(report.word)}: {escape(report.subject)}, opforge report</title>",
            f"<style>{style}</style></head>",
            '<body><a class="skip" href="#content">To the content</a>',
            *_header(report),
            '<main id="content">',
            *_overview(report),
            *(line for section in report.sections for line in _section(section)),
            *_provenance(report),
            "</main>",
            f"<footer><p>Made by opforge {escape(str(version))} {escape(str(made))}. "
            "This page loads nothing.</p></footer>",
            f"<script>{script}</script></body></html>",
            "",
        ]
    )


def _header(report: Report) -> Iterator[str]:
    state = "failed" if report.failed else "passed" if report.passed else "missing"
    yield f"<header><h1>{escape(report.subject)}</h1>"
    yield f'<div class="verdict {state}"><strong>{escape(report.word)}</strong><p>{escape(report.sentence())}</p>'
    for section in report.failed:
        yield f'<p><a href="#{section.anchor}">{escape(section.title)}</a>: {escape(section.summary)}</p>'
    yield "</div></header>"


def _overview(report: Report) -> Iterator[str]:
    yield '<nav aria-labelledby="overview"><h2 id="overview">At a glance</h2><ul class="glance">'
    for s in report.sections:
        yield (f'<li><a href="#{s.anchor}">{escape(s.title)}</a> {_word(s)} <span>{escape(s.summary)}</span></li>')
    yield "</ul></nav>"


def _word(section: Section) -> str:
    return f'<span class="word word-{section.state}">{STATES[section.state]}</span>'


def _section(section: Section) -> Iterator[str]:
    head = f"{section.anchor}-head"
    yield f'<section class="part" id="{section.anchor}" aria-labelledby="{head}">'
    yield f'<h2 id="{head}">{escape(section.title)} {_word(section)}</h2><p>{escape(section.summary)}</p>'
    for index, block in enumerate(section.blocks):
        yield from _block(block, f"{section.anchor}-{index}")
    yield "</section>"


def _block(block: Block, name: str) -> Iterator[str]:
    draw: dict[type[Any], Callable[[Any, str], Iterator[str]]] = {
        Table: _table,
        Bars: _bars,
        Figure: _figure,
        Listing: _listing,
    }
    yield from draw[type(block)](block, name)


def _table(block: Table, name: str) -> Iterator[str]:
    if block.folded:
        yield f"<details><summary>{escape(block.title)} ({len(block.rows)})</summary>"
        label = f'aria-label="{escape(block.title)}"'
    else:
        yield f'<h3 id="{name}">{escape(block.title)}</h3>'
        label = f'aria-labelledby="{name}"'
    if block.note:
        yield f'<p class="note">{escape(block.note)}</p>'
    tall = " tall" if len(block.rows) > 20 else ""
    yield f'<div class="scroll{tall}" role="region" {label} tabindex="0"><table data-sortable><thead><tr>'
    for column in block.columns:
        yield f'<th scope="col"{_figures(column)}>{escape(column.name)}</th>'
    yield "</tr></thead><tbody>"
    for row in block.rows:
        yield "<tr>" + "".join(_cell(v, c, k == 0) for k, (v, c) in enumerate(zip(row, block.columns, strict=True)))
        yield "</tr>"
    yield "</tbody></table></div>"
    if block.folded:
        yield "</details>"


def _figures(column: Column) -> str:
    return ' class="figures"' if column.figures else ""


def _cell(value: Value, column: Column, head: bool) -> str:
    text = value_text(value)
    order = value.order if isinstance(value, Cell) else value if isinstance(value, int | float) else None
    classes = ["figures"] if column.figures else ["wide"] if len(text) > _LONG else []
    classes += [value.tone] if isinstance(value, Cell) and value.tone else []
    marks = f' class="{" ".join(classes)}"' if classes else ""
    if order is not None and math.isfinite(order):
        marks += f' data-order="{order!r}"'
    tag = 'th scope="row"' if head else "td"
    return f"<{tag}{marks}>{escape(text)}</{tag.split()[0]}>"


def _bars(block: Bars, name: str) -> Iterator[str]:
    most = max((value for _, value, _ in block.rows), default=0.0) or 1.0
    yield f'<h3 id="{name}">{escape(block.title)}</h3>'
    if block.note:
        yield f'<p class="note">{escape(block.note)}</p>'
    yield f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0"><table data-sortable>'
    yield f'<thead><tr><th scope="col">what</th><th scope="col" class="figures">{escape(block.unit)}</th>'
    yield '<th scope="col">length</th></tr></thead><tbody>'
    for label, value, ours in block.rows:
        bar = f'<span class="bar{" ours" if ours else ""}" style="width:{100 * value / most:.2f}%"></span>'
        yield (
            f'<tr><th scope="row">{escape(label)}</th><td class="figures" data-order="{value!r}">{value:.4g}</td>'
            f'<td class="bars" data-order="{value!r}">{bar}</td></tr>'
        )
    yield "</tbody></table></div>"


def _figure(block: Figure, name: str) -> Iterator[str]:
    tall = " tall" if block.tall else ""
    yield f"<details><summary>{escape(block.title)}</summary>" if block.folded else ""
    yield f'<figure><figcaption id="{name}">{escape(block.title)}</figcaption>'
    yield f'<p class="note">{escape(block.words)}</p>'
    yield f'<div class="scroll{tall}" role="region" aria-labelledby="{name}" tabindex="0">{block.svg}</div></figure>'
    yield "</details>" if block.folded else ""


def _listing(block: Listing, name: str) -> Iterator[str]:
    yield f'<h3 id="{name}">{escape(block.title)}</h3>'
    yield f'<pre tabindex="0" aria-labelledby="{name}" role="region">{escape(block.text)}</pre>'


def _provenance(report: Report) -> Iterator[str]:
    yield '<section class="part" id="provenance" aria-labelledby="provenance-head">'
    yield '<h2 id="provenance-head">Where this comes from</h2>'
    yield "<p>What was looked at, with what, on which machine, by which commands.</p>"
    for index, block in enumerate(provenance_blocks(report)):
        yield from _block(block, f"provenance-{index}")
    yield "</section>"
