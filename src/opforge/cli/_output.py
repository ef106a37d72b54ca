"""What commands print: a table for people, or the same content as JSON with ``--json``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

__all__ = ["emit", "json_option", "progress", "table"]

_F = TypeVar("_F", bound=Callable[..., Any])


def json_option(function: _F) -> _F:
    """Add ``--json``; the command receives ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)


def emit(content: object, as_json: bool, text: Callable[[], None]) -> None:
    """Print ``content`` as JSON, or call ``text`` to print it for a person."""
    if as_json:
        click.echo(json.dumps(content, indent=2, default=str))
    else:
        text()


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under column heads; columns of figures align to the right."""
    from rich.console import Console
    from rich.table import Table

    content = [[("" if cell is None else str(cell)) for cell in row] for row in rows]
    view = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        figures = all(_is_figure(row[index]) for row in content) if content else False
        view.add_column(column, justify="right" if figures else "left", overflow="fold")
    for row in content:
        view.add_row(*row)
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140).print(view)


def _is_figure(text: str) -> bool:
    return not text or text[0].isdigit() or text[0] in "+-." or text in {"nan", "inf"}


@contextmanager
def progress(what: str, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal's standard error while long work runs; yields a function that renames it."""
    if as_json or not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield lambda text: status.update(text)
