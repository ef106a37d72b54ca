"""``opforge report``: what the other commands say of a model or operator, as one page and for machines."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from pathlib import Path

import click

from opforge.cli._gather import Gathered, Options, gather, gathered_sections
from opforge.cli._models import require_model
from opforge.cli._output import emit, json_option, path_text, progress
from opforge.errors import ArgumentError
from opforge.report import (
    FORMATS,
    KINDS,
    Report,
    Section,
    adapted,
    missing,
    name_origins,
    provenance,
    read_results,
    to_json,
    to_markdown,
    write,
)

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge report model.onnx --package my_gate -o report.html
  opforge report my_gate:MyGate -o report.html -o report.xml
  opforge report my_gate row_scale --only check
  opforge check my_gate --json > check.json
  opforge compare model.onnx --engine all --json > compare.json
  opforge report check.json compare.json -o report.html
  opforge report report.json --github           to the summary of a GitHub job

\b
Exit codes: 0 nothing failed; 1 a part failed, the files are written all the same; 2 wrong use.
"""


@click.command("report", short_help="Everything about a model or operator on one page.", epilog=_EPILOG)
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="NAME.html, .xml (JUnit), .json or .md; repeatable. [default: report.html]",
)
@click.option("--title", help="What the page is about. [default: the source]")
@click.option("--only", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Only this part; repeatable.")
@click.option("--level", default="quick", show_default=True, help="Level of the checks that it runs.")
@click.option("--duration", default="5", show_default=True, help="Of the stress that it runs.")
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--threads", type=click.IntRange(1), help="Threads per engine. [default: each engine's choice]")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that a model uses.")
@click.option("--github", is_flag=True, help="Append the Markdown to the file that GITHUB_STEP_SUMMARY names.")
@json_option
def command(
    sources: tuple[str, ...],
    outputs: tuple[Path, ...],
    title: str | None,
    kinds: tuple[str, ...],
    level: str,
    duration: str,
    sizes: tuple[str, ...],
    threads: int | None,
    packages: tuple[str, ...],
    github: bool,
    as_json: bool,
) -> int:
    """Make a report of SOURCES: JSON files that other commands printed, or targets that it runs them on.

    A target is an .onnx, a .bin, or an operator package, folder, file or `PACKAGE:Operator`. The checks of several
    are one table of operators and hosts, with a verdict each; their other parts bear the target's name. The page is
    one file that loads nothing. A part that is not there says why, and how to get it.
    """
    from opforge.onnx._read import read_model

    for path in outputs:
        if path.suffix not in FORMATS:
            raise ArgumentError("no form of a report", where=str(path), expected=", ".join(FORMATS), got=path.suffix)
    files = [Path(source) for source in sources if source.endswith(".json")]
    targets = [source for source in sources if not source.endswith(".json")]
    twice = [target for target, count in Counter(targets).items() if count > 1]
    if twice:
        raise ArgumentError("a target is named twice", where="report", got=", ".join(twice))
    for target in targets:
        if Path(target).suffix in (".onnx", ".bin"):
            require_model(Path(target))
        if Path(target).suffix == ".onnx":
            read_model(Path(target), weights=False)  # one that cannot be read is wrong use, as in other commands
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if github and not summary:
        raise ArgumentError("no file for the summary", where="--github", expected="GITHUB_STEP_SUMMARY names one")

    results, commands = read_results(files)
    name_origins(content for _, content in results)
    sections = [adapted(content, where) for where, content in results]
    hashed = list(files)
    if targets:
        options = Options(
            packages=packages,
            sizes=sizes,
            level=level,
            duration=duration,
            threads=threads,
            kinds=frozenset(kinds or KINDS),
        )
        parts: dict[str, Gathered] = {}
        with tempfile.TemporaryDirectory(prefix="opforge-report-") as folder, progress("gathering", as_json) as show:
            for number, target in enumerate(targets):
                own = Path(folder) / str(number)
                own.mkdir()
                parts[target] = gather(target, options, own, show)
        sections += gathered_sections(parts)
        hashed += [path for found in parts.values() for path in found.files]
        commands += [command for found in parts.values() for command in found.commands]
    subject = title or ", ".join(targets or [path.name for path in files])
    report = Report(subject, _ordered(sections, kinds), provenance(hashed, commands))
    written = outputs or (Path("report.html"),)
    for path in written:
        write(report, path)
    if github and summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(to_markdown(report))

    def text() -> None:
        click.echo(f"{report.word}: {report.subject}: {report.sentence()}")
        for section in report.failed:
            click.echo(f"FAILED {section.title}: {section.summary}")
        click.echo(f"wrote {', '.join(path_text(path.absolute()) for path in written)}")

    emit(json.loads(to_json(report)), as_json, text)
    return 1 if report.failed else 0


def _ordered(sections: list[Section], asked: tuple[str, ...]) -> list[Section]:
    """Put sections in the order of the kinds; a kind that is nowhere is said where it was asked for.

    Without ``--only`` every kind is asked for, but the suite, which few have.
    """
    present = {section.kind for section in sections if section.state != "missing"}
    # What one target of several lacks bears its name, and stays beside what the others have.
    general = {kind.title for kind in KINDS.values()}
    every = [s for s in sections if s.state != "missing" or s.kind not in present or s.title not in general]
    said = {section.kind for section in every} | {"suite"}
    absent = [kind for kind in KINDS.values() if kind.name not in said and (not asked or kind.name in asked)]
    every += [missing(kind, "No result of it was given") for kind in absent]
    names = list(KINDS)
    return sorted(every, key=lambda section: names.index(section.kind))
