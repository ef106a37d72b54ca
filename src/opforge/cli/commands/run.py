"""``opforge run``: run a .bin (or, compiled on the way, an ONNX model)."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import click
import numpy as np

from opforge.cli._output import emit, json_option, table
from opforge.cli._targets import load_packages, parse_inputs, parse_sizes
from opforge.errors import ArgumentError

__all__ = ["command"]


@click.command("run")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--input", "words", multiple=True, help="NAME=FILE.npy, repeatable.")
@click.option("--npz", type=click.Path(exists=True, path_type=Path), help="All inputs in one .npz file.")
@click.option("--random", "draw", is_flag=True, help="Random inputs by the declared shapes.")
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the outputs to this .npz file.")
@click.option("--engine", default="opforge", show_default=True)
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Timed runs.")
@click.option("--threads", type=int, help="Threads.")
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
    """Run MODEL and print each output's shape and figures."""
    from opforge.verify import find_engine, load_npz, random_inputs

    load_packages(packages)
    started = time.perf_counter()
    loaded = find_engine(engine).load(model, threads=threads)
    load_ms = (time.perf_counter() - started) * 1e3
    if npz is not None:
        inputs = load_npz(npz)
    elif words:
        inputs = parse_inputs(words)
    elif draw or not loaded.inputs:
        inputs = random_inputs(loaded.inputs, seed=seed, sizes=parse_sizes(sizes))
    else:
        names = ", ".join(f"{i.name} {i.dtype}{list(i.shape)}" for i in loaded.inputs)
        raise ArgumentError("the inputs are missing", where=str(model), expected=names, hint="give --input, --npz or --random")
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        outputs = loaded.run(inputs)
        times.append((time.perf_counter() - started) * 1e3)
    if output is not None:
        with output.open("wb") as file:
            np.savez(file, **outputs)  # type: ignore[arg-type]
    content = {
        "model": str(model),
        "engine": engine,
        "load_ms": round(load_ms, 3),
        "run_ms": round(median(times), 4),
        "runs": repeat,
        "outputs": {name: _figures(np.asarray(value)) for name, value in outputs.items()},
    }

    def text() -> None:
        rows = [(n, f["dtype"], f["shape"], f["min"], f["max"], f["mean"], f["non_finite"]) for n, f in content["outputs"].items()]  # type: ignore[attr-defined]
        table(None, ("output", "dtype", "shape", "min", "max", "mean", "not finite"), rows)
        click.echo(f"load {load_ms:.2f} ms, run {median(times):.3f} ms (median of {repeat})")

    emit(content, as_json, text)


def _figures(value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> dict[str, object]:
    wide = np.asarray(value, np.float64)
    finite = wide[np.isfinite(wide)]
    low, high, mean = (float(f(finite)) for f in (np.min, np.max, np.mean)) if finite.size else (None, None, None)
    return {
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "min": None if low is None else float(f"{low:.6g}"),
        "max": None if high is None else float(f"{high:.6g}"),
        "mean": None if mean is None else float(f"{mean:.6g}"),
        "non_finite": int(wide.size - finite.size),
    }
