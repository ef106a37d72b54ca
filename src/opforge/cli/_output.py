"""What commands print: a table for people, or the same content as JSON with ``--json``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = [
    "count_text",
    "emit",
    "json_option",
    "json_text",
    "left_out",
    "markdown",
    "path_text",
    "print_json",
    "progress",
    "shape_text",
    "short_reason",
    "size_text",
    "table",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_WIDTH = 140
_GOT = 160


def json_option(function: _F) -> _F:
    """Add ``--json``; the command receives ``as_json``."""
    text = "Print the result (or the error) as JSON on standard output, and nothing else."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


def emit(content: object, as_json: bool, text: Callable[[], None]) -> None:
    """Print ``content`` as JSON, or call ``text`` to print it for a person."""
    if as_json:
        print_json(content)
    else:
        text()


def print_json(content: object) -> None:
    """Print strict JSON."""
    click.echo(json_text(content))


def json_text(content: object) -> str:
    """Write strict JSON: what is not a finite number stands there as text ("nan", "inf", "-inf")."""
    return json.dumps(_plain(content), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a command reports
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)


def table(title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under column heads; columns of figures align to the right, empty columns are left out."""
    from rich.console import Console
    from rich.table import Table

    content = [[("" if cell is None else str(cell)) for cell in row] for row in rows]
    if title:
        click.echo(title)
    view = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    kept = [i for i in range(len(columns)) if not content or any(row[i] for row in content)]
    for index in kept:
        figures = all(_is_figure(row[index]) for row in content) if content else False
        view.add_column(columns[index], justify="right" if figures else "left", overflow="fold")
    for row in content:
        view.add_row(*(row[index] for index in kept))
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _WIDTH, file=sys.stdout)
    with console.capture() as capture:
        console.print(view)
    # Without a terminal nobody needs the blanks that fill the last column.
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table as Markdown; empty columns are left out."""
    content = [
        ["" if cell is None else str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows
    ]
    kept = [i for i in range(len(columns)) if not content or any(row[i] for row in content)]
    heads = [columns[i].replace("|", "\\|") for i in kept]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(kept)}"]
    return "\n".join(lines + [f"| {' | '.join(row[i] for i in kept)} |" for row in content]) + "\n"


def left_out(engines: Mapping[str, str]) -> None:
    """Print a line for each engine that ran nothing: its name, and what it says with what it got."""
    for name, reason in engines.items():
        click.echo(f"left out {name}: {short_reason(name, reason)}")


def short_reason(name: str, reason: str) -> str:
    """What an engine says with what it got, on one line."""
    first, *rest = reason.removeprefix(f"{name}: ").splitlines()
    start = next((k for k, line in enumerate(rest) if line.startswith("  got:")), len(rest))
    listed = takewhile(lambda line: line.startswith("    "), rest[start + 1 :])
    texts = [line.strip() for line in ("".join(rest[start : start + 1]).removeprefix("  got:"), *listed)]
    got = "; ".join(filter(None, texts))
    return first + (f"; got {got[:_GOT]}{'...' if got[_GOT:] else ''}" if got else "")


def _is_figure(text: str) -> bool:
    return not text or text[0].isdigit() or text[0] in "+-." or text in {"nan", "inf"}


def shape_text(shape: Sequence[object] | None) -> str:
    """Write a shape as in signatures: ``[N, 3]``, ``?`` for an unknown dimension or rank."""
    if shape is None:
        return "?"
    return "[" + ", ".join("?" if dim in (None, "") else str(dim) for dim in shape) + "]"


@contextmanager
def progress(what: str, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal's standard error while long work runs; yields a function that renames it."""
    if as_json or not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console

    with Console(stderr=True, markup=False).status(what) as status:
        yield lambda text: status.update(text)


def size_text(path: Path) -> str:
    """Give a file's size for people."""
    size = float(path.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def path_text(path: Path) -> str:
    """Write a path relative to the working directory where it lies in it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def count_text(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``, ``function body`` -> ``function bodies``."""
    plural = f"{noun[:-1]}ies" if noun.endswith("dy") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
