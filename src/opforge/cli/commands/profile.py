"""``opforge profile``: where the time of a model goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opforge._files import whole_file
from opforge.cli._output import emit, json_option, left_out, progress
from opforge.cli._profile import csv_text, print_profile, print_side_by_side
from opforge.cli._targets import load_packages, parse_sizes
from opforge.errors import ArgumentError, OpforgeError

if TYPE_CHECKING:
    from opforge.monitor import Log
    from opforge.profiling import Profile

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge profile model.bin --threads 1
  opforge profile model.onnx --engine opforge --engine onnxruntime --size N=128
  opforge profile model.bin --from-log model.jsonl --json > profile.json
  opforge profile model.onnx --trace trace.json --roofline roofline.svg --flame flame.svg --csv nodes.csv
"""
_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command("profile", short_help="Where the time of a model goes, node by node.", epilog=_EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--engine", "names", multiple=True, help="Engine, repeatable, or all that are here. [default: opforge]")
@click.option(
    "--npz", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="All inputs in one .npz file."
)
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option(
    "--from-log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A log of `opforge monitor`: inputs of the shapes that most runs had, and as many threads.",
)
@click.option("--threads", type=click.IntRange(1), help="Threads of a run. [default: each engine's choice]")
@click.option("--runs", type=click.IntRange(1), help="Runs that are measured. [default: by --seconds]")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="About how long; at most 5000 runs of it are watched. [default: 1, less where 5000 runs take less]",
)
@click.option("--top", default=20, show_default=True, type=click.IntRange(1), help="Nodes to print; files have all.")
@click.option("--csv", "csv_file", type=_FILE, help="Write a row per node.")
@click.option("--trace", "trace_file", type=_FILE, help="Write a trace for Perfetto or chrome://tracing (.json).")
@click.option("--roofline", "roofline_file", type=_FILE, help="Draw the nodes under the machine's roofs (.svg).")
@click.option("--flame", "flame_file", type=_FILE, help="Draw time by module, line and node (.svg).")
@click.option("--stacks", "stacks_file", type=_FILE, help="Write collapsed stacks for flame graph tools.")
@click.option("--remeasure", is_flag=True, help="Measure the machine's roofs anew.")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@json_option
def command(
    model: Path,
    names: tuple[str, ...],
    npz: Path | None,
    sizes: tuple[str, ...],
    seed: int,
    from_log: Path | None,
    threads: int | None,
    runs: int | None,
    seconds: float | None,
    top: int,
    packages: tuple[str, ...],
    remeasure: bool,
    as_json: bool,
    **files: Path | None,
) -> None:
    """Measure each node of MODEL (.bin or .onnx) and hold it against what this machine can do.

    Bytes are inputs, outputs and weights, each once; operations follow from the operator's definition. The roofs of
    the machine are measured the first time and kept. With several engines, nodes that stand for the same nodes of the
    model are printed side by side; files are of the first engine.
    """
    from opforge.bin.native import fault_of
    from opforge.profiling import profile, side_by_side
    from opforge.verify import choose_engines, find_engine, gather_values, load_npz, random_inputs

    _check_files(files)
    if from_log is not None and (npz is not None or sizes):
        raise ArgumentError("give one of --from-log, --npz and --size", where="profile")
    load_packages(packages)
    chosen, skipped = choose_engines(names or ("opforge",), model)
    log = None if from_log is None else _busiest(from_log, model)
    threads = log.threads if log is not None and threads is None else threads
    infos = find_engine(chosen[0]).load(model, threads=threads).inputs
    wanted = parse_sizes(sizes) if log is None else log.sizes(infos)
    values = gather_values(load_npz(npz), infos) if npz else random_inputs(infos, seed=seed, sizes=wanted)
    optional = set(chosen) - set(names) if "all" in names else set()
    profiles: list[Profile] = []
    with progress("measuring", as_json) as say:
        for name in chosen:
            say(f"measuring {name}")
            try:
                with fault_of(f"{name} runs {model.name}"):
                    profiles.append(
                        profile(
                            model, values, engine=name, runs=runs, seconds=seconds, threads=threads,
                            remeasure=remeasure and not profiles,
                        )
                    )  # fmt: skip
            except OpforgeError as problem:
                if name not in optional:
                    raise
                skipped[name] = str(problem)
    _write(profiles[0], files)

    def text() -> None:
        for item in profiles:
            print_profile(item, top)
        if len(profiles) > 1:
            print_side_by_side(profiles, top)
        left_out(skipped)

    groups = side_by_side(profiles) if len(profiles) > 1 else []
    content: dict[str, Any] = {
        **profiles[0].as_dict(),
        "others": [item.as_dict() for item in profiles[1:]],
        "side_by_side": [{"members": list(g.members), "nodes": dict(g.nodes), "run_ns": dict(g.times)} for g in groups],
        "skipped": skipped,
    }
    emit(content, as_json, text)


def _busiest(path: Path, model: Path) -> Log:
    """Choose the log with the most runs of a file of that name, or of any where none has it."""
    from opforge.monitor import read_log

    logs = read_log([path])
    named = [log for log in logs if Path(log.path).stem == model.stem] or logs
    if not named:
        raise ArgumentError("the log is empty", where=str(path), expected="a window at least")
    return max(named, key=lambda log: log.runs)


def _writers() -> dict[str, tuple[str, Callable[[Profile], str]]]:
    from opforge.profiling import chrome_trace, collapsed_stacks, flame, roofline

    return {
        "csv_file": (".csv", csv_text),
        "trace_file": (".json", lambda item: json.dumps(chrome_trace(item))),
        "roofline_file": (".svg", roofline),
        "flame_file": (".svg", flame),
        "stacks_file": ("", collapsed_stacks),
    }


def _check_files(files: dict[str, Path | None]) -> None:
    for key, path in files.items():
        suffix = _writers()[key][0]
        if path is not None and suffix and path.suffix != suffix:
            raise ArgumentError(
                "the file has another kind than its name says",
                where=f"--{key.removesuffix('_file')}",
                expected=f"NAME{suffix}",
                got=str(path),
            )
        if path is not None and not path.absolute().parent.is_dir():
            raise ArgumentError("there is no such folder", where=f"--{key.removesuffix('_file')}", got=str(path.parent))


def _write(item: Profile, files: dict[str, Path | None]) -> None:
    for key, path in files.items():
        if path is not None:
            with whole_file(path) as temporary:
                temporary.write_text(_writers()[key][1](item), encoding="utf-8")
