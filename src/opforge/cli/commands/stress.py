"""``opforge stress``: does a model or an operator leak, race, drift or crash when it is called for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from opforge.cli._output import emit, json_option, path_text
from opforge.cli._targets import author_code, load_operators, load_packages, parse_pairs, parse_seconds
from opforge.errors import ArgumentError

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge stress gate.bin --duration 60 --threads 8
  opforge stress gate.bin --shapes N=1,7,64
  opforge stress gate.onnx --engine onnxruntime
  opforge stress my_gate:MyGate --host torch

\b
Exit codes: 0 nothing found; 1 a crash, a hang, an error, other results, or memory that grows; 2 wrong use;
130 ended by Ctrl-C or SIGTERM with nothing found until then. The report is written in every one but 2.
"""
_MIB = 1 << 20


@click.command("stress", short_help="Call a model or operator for a while: leaks, races, crashes.", epilog=_EPILOG)
@click.argument("target")
@click.option("--duration", default="10", show_default=True, help="How long, such as 30, 90s, 5m or 2h.")
@click.option("--threads", default=4, show_default=True, type=click.IntRange(1, 256), help="Callers at a time.")
@click.option("--shapes", multiple=True, help="NAME=1,8,64: sizes of a named dimension; repeatable, all combinations.")
@click.option("--engine", default="opforge", show_default=True, help="What runs a model.")
@click.option("--host", default="numpy", show_default=True, help="What computes operators: numpy or a framework.")
@click.option("--run-threads", type=click.IntRange(1), help="Threads of one run of a model. [default: the engine's]")
@click.option(
    "--npz",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Inputs of a model, repeatable: each file is a case.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of drawn inputs.")
@click.option("--leak-limit", default=1.0, show_default=True, type=click.FloatRange(0), help="MiB of growth allowed.")
@click.option("--patience", default="60", show_default=True, help="Time without a finished call that is a hang.")
@click.option("--no-compare", is_flag=True, help="Do not hold results against the first ones.")
@click.option("--out", default="opforge-stress", show_default=True, type=click.Path(file_okay=False, path_type=Path))
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that a model uses.")
@json_option
def command(
    target: str,
    duration: str,
    threads: int,
    shapes: tuple[str, ...],
    engine: str,
    host: str,
    run_threads: int | None,
    npz: tuple[Path, ...],
    seed: int,
    leak_limit: float,
    patience: str,
    no_compare: bool,
    out: Path,
    packages: tuple[str, ...],
    as_json: bool,
) -> int:
    """Call TARGET (.bin, .onnx, or an operator package, folder, file, `PACKAGE:Operator`) over and over.

    A fifth of the time one caller calls, the rest --threads at once, cases of changing shapes in shuffled order;
    every result must be the first one of its case, bit for bit. The work is done in a process of its own, whose
    memory is sampled, so that a crash or a hang is reported as well. --out gets stress.json, stress.txt, and for the
    first failure of each kind an .npz with its inputs.
    """
    from opforge.verify.stress import Spec, stress

    load_packages(packages)  # what the author's files say is said here, not in the other process
    spec = Spec(
        target,
        engine=engine,
        host=host,
        seconds=parse_seconds(duration, "--duration"),
        threads=threads,
        run_threads=run_threads,
        shapes=_sizes(shapes),
        npz=[str(path) for path in npz],
        seed=seed,
        packages=packages,
        compare=not no_compare,
        allowed_growth=int(leak_limit * _MIB),
        patience=parse_seconds(patience, "--patience"),
    )
    if not spec.is_model:
        if Path(target).suffix in (".bin", ".onnx"):
            raise ArgumentError("there is no such model", where=target)
        load_operators(target)
    with _line(spec.seconds, as_json) as show, author_code("the target cannot be stressed", target):
        report = stress(spec, out, show=show)

    def text() -> None:
        click.echo(report.text(), nl=False)
        click.echo(f"wrote {path_text((out / 'stress.json').absolute())} and stress.txt beside it")

    emit(report.as_dict(), as_json, text)
    return 130 if report.passed and report.interrupted else 0 if report.passed else 1


def _sizes(words: tuple[str, ...]) -> dict[str, list[int]]:
    found = {}
    for name, text in parse_pairs(words, "--shapes N=1,8").items():
        parts = text.split(",")
        if not all(part.isdigit() for part in parts):
            raise ArgumentError(f"the sizes of {name} are no numbers", got=repr(text), expected="e.g. --shapes N=1,8")
        found[name] = [int(part) for part in parts]
    return found


@contextmanager
def _line(seconds: float, as_json: bool) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show a line of progress on a terminal's standard error; elsewhere nothing."""
    if as_json or not sys.stderr.isatty():
        yield lambda figures: None
        return
    from rich.console import Console

    with Console(stderr=True, markup=False, highlight=False).status("loading") as status:

        def show(figures: Mapping[str, Any]) -> None:
            if "runs" not in figures:
                return
            memory = f", memory {figures['memory'] / _MIB:.1f} MiB" if figures["memory"] else ""
            status.update(
                f"{figures['at']:.0f} of {seconds:.0f} s: {figures['runs']} calls, {figures.get('rate', 0):.4g} a "
                f"second{memory}, {figures['errors']} errors, {figures['mismatches']} other results"
            )

        yield show
