"""``opforge run``: run a .bin (or, compiled on the way, an ONNX model)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from opforge._files import whole_file
from opforge.cli._output import emit, json_option, left_out, progress, shape_text, table
from opforge.cli._targets import load_packages, parse_inputs, parse_sizes
from opforge.errors import ArgumentError, OpforgeError

if TYPE_CHECKING:
    from opforge.engines import LoadedModel, TensorInfo

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge run gate.bin --random
  opforge run gate.bin --random --size N=128 --repeat 20 --threads 1
  opforge run gate.bin --input x=x.npy --output result.npz
  opforge run gate.onnx --random --engine all
"""


@click.command("run", short_help="Run a .bin or .onnx; print the outputs' figures and the time.", epilog=_EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--input", "words", multiple=True, help="NAME=FILE.npy, repeatable; NAME[K]=FILE.npy for sequences.")
@click.option(
    "--npz", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="All inputs in one .npz file."
)
@click.option("--random", "draw", is_flag=True, help="Random inputs by the declared shapes; unknown dimensions are 2.")
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the outputs to this .npz file.")
@click.option(
    "--engine", default="opforge", show_default=True, help="opforge, another engine for .onnx models, or all."
)
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Timed runs.")
@click.option("--threads", type=click.IntRange(1), help="Threads. [default: all that the process may use]")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@json_option
def command(
    model: Path,
    words: tuple[str, ...],
    npz: Path | None,
    draw: bool,
    sizes: tuple[str, ...],
    seed: int,
    output: Path | None,
    engine: str,
    repeat: int,
    threads: int | None,
    packages: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run MODEL and print each output's shape and figures.

    Inputs come from --input, --npz, or --random.
    """
    from opforge.bin.native import fault_of
    from opforge.verify import choose_engines, find_engine, reasons
    from opforge.verify._runs import trial

    if sum((bool(words), npz is not None, draw)) > 1:
        raise ArgumentError("give one of --input, --npz and --random", where="run")
    if sizes and not draw:
        raise ArgumentError("--size is for --random", where="run")
    load_packages(packages)
    names, skipped = choose_engines([engine], model)
    if output is not None and engine == "all":
        raise ArgumentError("--output keeps the outputs of one engine", where="run", got="--engine all")

    def given(infos: Sequence[TensorInfo]) -> dict[str, Any]:
        return _inputs(model, infos, words, npz, draw, sizes, seed)

    runs: list[dict[str, Any]] = []
    inputs: dict[str, Any] | None = None
    for name in names:
        with progress(f"running {model.name} in {name}", as_json):
            try:
                trial(name, model, given if inputs is None else inputs, threads, packages, tried=engine == "all")
                found = find_engine(name)
                with fault_of(f"{name} loads {model.name}"):
                    started = time.perf_counter()
                    loaded = found.load(model, threads=threads)
                    load_ms = (time.perf_counter() - started) * 1e3
            except OpforgeError as problem:
                if engine != "all":
                    raise
                skipped[name] = str(problem)
                continue
            if inputs is None:  # wrong ones are wrong for every engine
                inputs = given(loaded.inputs)
            try:
                with fault_of(f"{name} runs {model.name}"):
                    figures = _run(loaded, inputs, repeat, output)
            except OpforgeError as problem:
                if engine != "all":
                    raise
                skipped[name] = str(problem)
                continue
            runs.append({"model": str(model), "engine": name, "load_ms": round(load_ms, 3), **figures})
    if not runs:
        raise ArgumentError("no engine runs the model", where=str(model), got=reasons(skipped))
    content = runs[0] if engine != "all" else {"model": str(model), "engines": runs, "skipped": skipped}

    def text() -> None:
        for run in runs:
            if engine == "all":
                click.echo(f"{run['engine']}:")
            _print(run)
        left_out(skipped)

    emit(content, as_json, text)


def _inputs(
    model: Path,
    infos: Sequence[TensorInfo],
    words: tuple[str, ...],
    npz: Path | None,
    draw: bool,
    sizes: tuple[str, ...],
    seed: int,
) -> dict[str, Any]:
    from opforge.verify import gather_values, load_npz, random_inputs

    if npz is not None or words:
        return gather_values(load_npz(npz) if npz is not None else parse_inputs(words), infos)
    if draw or not infos:
        return random_inputs(infos, seed=seed, sizes=parse_sizes(sizes))
    names = ", ".join(
        f"{i.name}: {'' if i.kind == 'tensor' else f'{i.kind} of '}{i.dtype}{shape_text(i.shape)}" for i in infos
    )
    hint = "give --input NAME=FILE.npy for each, --npz FILE, or --random"
    raise ArgumentError("the inputs are missing", where=str(model), expected=names, hint=hint)


def _run(loaded: LoadedModel, inputs: dict[str, Any], repeat: int, output: Path | None) -> dict[str, Any]:
    from opforge.verify import flat_values

    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        results = loaded.run(inputs)
        times.append((time.perf_counter() - started) * 1e3)
    outputs = flat_values(results)
    if output is not None:
        _write(output, outputs)
    return {
        "run_ms": round(median(times), 4),
        "runs": repeat,
        "inputs": {name: list(value.shape) for name, value in flat_values(inputs).items()},
        "input_dtypes": {name: str(value.dtype) for name, value in flat_values(inputs).items()},
        "outputs": {name: _figures(value) for name, value in outputs.items()},
        "empty": [name for name, value in results.items() if value is None],
        "written": None if output is None else str(output),
    }


def _print(run: dict[str, Any]) -> None:
    for name, shape in run["inputs"].items():
        click.echo(f"input {name}: {run['input_dtypes'][name]}{shape_text(shape)}")
    rows = [
        (n, f["dtype"], shape_text(f["shape"]), *(_short(f[k]) for k in ("min", "max", "mean")), f["non_finite"])
        for n, f in run["outputs"].items()
    ]
    table(None, ("output", "dtype", "shape", "min", "max", "mean", "not finite"), rows)
    for name in run["empty"]:
        click.echo(f"{name} is an optional that is empty")
    count = f"median of {run['runs']} runs" if run["runs"] > 1 else "the first run"
    click.echo(f"load {run['load_ms']:.2f} ms, run {run['run_ms']:.3f} ms ({count})")
    if run["written"] is not None:
        click.echo(f"wrote {run['written']}")


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an .npz, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _figures(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    wide = np.asarray(value, np.float64)
    finite = wide[np.isfinite(wide)]
    low, high, mean = (float(f(finite)) for f in (np.min, np.max, np.mean)) if finite.size else (None, None, None)
    return {
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "min": low,
        "max": high,
        "mean": mean,
        "non_finite": int(wide.size - finite.size),
    }
