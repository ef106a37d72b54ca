"""``opforge bench``: the time of a model in several engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opforge.cli._output import emit, json_option, left_out, progress, table
from opforge.cli._targets import load_packages, parse_sizes

if TYPE_CHECKING:
    from opforge.engines import TensorInfo

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge bench model.onnx --engine all --threads 1
  opforge bench model.onnx --engine opforge --engine onnxruntime --size N=128
"""


@click.command("bench", short_help="Time a model in several engines.", epilog=_EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--engine", "names", multiple=True, help="Engine, repeatable, or all that are here. [default: opforge, onnxruntime]"
)
@click.option(
    "--npz", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="All inputs in one .npz file."
)
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(3), help="Blocks of runs per engine.")
@click.option("--threads", type=click.IntRange(1), help="Threads per engine. [default: each engine's choice]")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@json_option
def command(
    model: Path,
    names: tuple[str, ...],
    npz: Path | None,
    sizes: tuple[str, ...],
    seed: int,
    rounds: int,
    threads: int | None,
    packages: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run MODEL on the same inputs in each engine, in turn and in shuffled order, and print the median times.

    The ratio is the first engine's time over that of the row: above 1 means that the row is faster.
    """
    from opforge.verify import choose_engines, gather_values, load_npz, random_inputs
    from opforge.verify.benchmark import time_engines

    load_packages(packages)
    chosen, skipped = choose_engines(names or ("opforge", "onnxruntime"), model)

    def given(infos: Sequence[TensorInfo]) -> dict[str, Any]:
        if npz is not None:
            return gather_values(load_npz(npz), infos)
        return random_inputs(infos, seed=seed, sizes=parse_sizes(sizes))

    optional = set(chosen) - set(names) if "all" in names else set()
    with progress("timing the engines", as_json):
        result = time_engines(
            model, given, chosen, rounds=rounds, threads=threads, optional=optional, packages=packages
        )
    result.skipped = {**skipped, **result.skipped}

    def text() -> None:
        rows = [
            (r.engine, f"{r.load_ms:.1f}", *(f"{v:.4g}" for v in (r.median_ms, r.best_ms)), f"{r.ratio:.2f}",
             f"{r.max_abs:.2g}")
            for r in result.rows
        ]  # fmt: skip
        first = result.rows[0].engine
        table(None, ("engine", "load ms", "median ms", "best ms", f"{first} / it", "max |difference|"), rows)
        click.echo(f"medians of {rounds} interleaved blocks")
        left_out(result.skipped)

    emit({"model": str(model), **result.as_dict()}, as_json, text)
