"""``opforge pipeline``: the whole path of a model, step by step, in one folder."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import click

from opforge.cli._models import require_model
from opforge.cli._output import emit, json_option, path_text, progress
from opforge.cli._targets import split_target
from opforge.errors import ArgumentError
from opforge.pipeline import RECORD, STEPS, Settings, StepResult, run

__all__ = ["command"]

_NAMES = [step.name for step in STEPS]
_MARKS = {"passed": "✓", "up to date": "✓", "failed": "FAILED", "not run": "NOT RUN"}
_EPILOG = """\b
Examples:
  opforge pipeline net.py:make --package my_gate -o build/net --size N=8
  opforge pipeline model.onnx -o build/model --until compile
  opforge pipeline net.py:make -o build/net --resume            goes on where it ended
  opforge pipeline net.py:make -o build/net --only bench --option bench="--rounds 30"
  opforge pipeline --config net.toml                            the same words, kept in a file

\b
A file for --config:
  source = "net.py:make"
  output = "build/net"
  packages = ["my_gate"]
  sizes = ["N=8"]
  level = "deep"

\b
Exit codes: 0 every step passed; 1 a step failed, or lacks what another should have made; 2 wrong use.
"""


def _configured(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Take the file's entries as the options' defaults; paths in it are relative to the working directory."""
    if path is None:
        return
    try:
        entries: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ArgumentError("the file cannot be read", where=str(path), got=str(problem), expected="TOML") from None
    known = {p.name: p for p in context.command.params if p.name not in (None, "config", "as_json", "resume")}
    for name, value in entries.items():
        if name not in known:
            raise ArgumentError("no such entry", where=f"{path}: {name}", expected=", ".join(map(str, known)))
        if (isinstance(value, list)) != bool(getattr(known[name], "multiple", False)):
            wanted = "a list" if getattr(known[name], "multiple", False) else "one value"
            raise ArgumentError("the entry has another form", where=f"{path}: {name}", expected=wanted, got=repr(value))
    context.default_map = {**entries}


@click.command("pipeline", short_help="From source to report: every step, in one folder.", epilog=_EPILOG)
@click.argument("source", required=False)
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder for all that it writes.")
@click.option("--name", help="Files' names begin with it. [default: by SOURCE]")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that the model uses.")
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--engine", "engines", multiple=True, help="Engine to compare with and to time; repeatable, or all.")
@click.option("--level", default="default", show_default=True, help="Level of the operators' checks.")
@click.option("--duration", default="5", show_default=True, help="Of the stress.")
@click.option("--threads", type=click.IntRange(1), help="Threads per engine. [default: each engine's choice]")
@click.option("--only", "only", multiple=True, type=click.Choice(_NAMES), help="Only this step; repeatable.")
@click.option("--skip", "skip", multiple=True, type=click.Choice(_NAMES), help="Without this step; repeatable.")
@click.option("--until", type=click.Choice(_NAMES), help="No step behind this one.")
@click.option("--option", "options", multiple=True, help='STEP="WORDS": more words for a step\'s command; repeatable.')
@click.option("--resume", is_flag=True, help="Keep what an earlier run passed and nothing has changed since.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    callback=_configured,
    is_eager=True,
    expose_value=False,
    help="Take what is not given here from this TOML file.",
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    source: str | None,
    output: Path | None,
    name: str | None,
    packages: tuple[str, ...],
    sizes: tuple[str, ...],
    engines: tuple[str, ...],
    level: str,
    duration: str,
    threads: int | None,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    until: str | None,
    options: tuple[str, ...],
    resume: bool,
    as_json: bool,
) -> int:
    """Take SOURCE through check, export, validate, simplify, compile, inspect, compare, profile, bench, stress, report.

    SOURCE is what `opforge export` takes (`module.py:factory`, `PACKAGE:Operator`, the folder of a SavedModel), or an
    .onnx. Each step is the command of its name in a process of its own. The folder gets NAME.onnx,
    NAME.simplified.onnx, NAME.bin, report.html, .xml (JUnit) and .json, each command's JSON in results, and
    pipeline.json, which says how each step went. A step that fails ends only what needs its files.
    """
    source = source or (context.default_map or {}).get("source")
    if source is None or output is None:
        lacking = "SOURCE" if source is None else "--output"
        raise ArgumentError(f"{lacking} is missing", where="pipeline", hint="opforge pipeline net.py:make -o build/net")
    if source.endswith(".onnx"):
        require_model(Path(source))
    settings = Settings(
        source=source,
        folder=output,
        name=name or _name(source),
        packages=packages,
        sizes=sizes,
        level=level,
        duration=duration,
        engines=engines,
        threads=threads,
        options=tuple(_words(option) for option in options),
    )
    asked = [n for n in _NAMES[: _NAMES.index(until) + 1 if until else None] if n in (only or _NAMES) and n not in skip]
    if not asked:
        raise ArgumentError("no step is left", where="pipeline", got=f"--only {only}, --skip {skip}, --until {until}")

    def ended(step: StepResult) -> None:
        if not as_json and step.state != "not asked":
            click.echo(f"{_MARKS.get(step.state, '-')} {step.step}: {step.reason or step.state} ({step.seconds:.1f} s)")

    with progress("pipeline", as_json) as show:
        made = run(settings, asked=asked, resume=resume, show=show, ended=ended)

    def text() -> None:
        good = (
            "every step that was asked for passed"
            if made.passed
            else "failed: " + ", ".join(s.step for s in made.steps if s.state == "failed")
        )
        place = path_text(output.absolute())
        click.echo(f"\n{good}; files are in {place}, {RECORD} tells of each step")

    emit(made.as_dict(), as_json, text)
    return 0 if made.passed else 1


def _name(source: str) -> str:
    """Name files after the factory's module, the operator, the model or the folder."""
    where, found = split_target(source)
    if found is not None and not found[:1].isupper():
        found = None
    return found or Path(where).name.removesuffix(".onnx").removesuffix(".py").rpartition(".")[2]


def _words(option: str) -> tuple[str, tuple[str, ...]]:
    step, equals, words = option.partition("=")
    if not equals or step not in _NAMES:
        raise ArgumentError(
            "--option names a step and its words",
            where=option,
            expected='STEP="WORDS", STEP one of ' + ", ".join(_NAMES),
        )
    try:
        return step, tuple(shlex.split(words))
    except ValueError as problem:
        raise ArgumentError("the words of --option do not end", where=option, got=str(problem)) from None
