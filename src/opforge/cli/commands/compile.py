"""``opforge compile``: an ONNX model to one .bin."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opforge.cli._output import emit, json_option, progress, size_text
from opforge.cli._targets import load_packages, parse_sizes
from opforge.errors import ArgumentError

if TYPE_CHECKING:
    from opforge.engines import Writer

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge compile model.onnx                       writes model.bin beside it
  opforge compile gate.onnx -o gate.bin --package my_gate
  opforge inspect gate.bin                         what went into it
  opforge compile net.onnx --target ncnn           writes net.ncnn.param, net.ncnn.bin and net.ncnn.json
"""


@click.command("compile", short_help="An .onnx model to one .bin.", epilog=_EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The .bin to write. [default: beside MODEL]")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@click.option(
    "--target",
    default="cpu",
    show_default=True,
    help="What the file is compiled for; or an engine that has files of its own, which are written then.",
)
@click.option(
    "--size", "sizes", multiple=True, metavar="N=4", help="Number for a named dimension (targets that are engines)."
)
@click.option(
    "--precision",
    default="model",
    show_default=True,
    help="What large weights are stored in: f16, computed with in f32 all the same, or bf16, which matrix products may "
    "multiply as it is; `model` keeps the model's.",
)
@click.option(
    "--operators",
    type=click.Choice(["registry", "body"]),
    help="Where a custom node's meaning comes from when its body and the registered operator disagree.",
)
@click.option("--tune", is_flag=True, help="Measure alternatives on this machine and store the faster ones.")
@click.option(
    "--tune-shape",
    "shapes",
    multiple=True,
    metavar="INPUT=1x3x640x640",
    help="Shape of an input to measure with. [default: the model's; open sizes are 1 for the first, 64 for others]",
)
@json_option
def command(
    model: Path,
    output: Path | None,
    packages: tuple[str, ...],
    target: str,
    sizes: tuple[str, ...],
    precision: str,
    operators: str | None,
    tune: bool,
    shapes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compile MODEL to a .bin, which runs without Python, frameworks or compilers.

    Formula operators travel inside the file. Kernel operators are named in it, and their library is looked for
    where it runs. Nodes that nothing serves are an error that lists all of them; nothing is written then.
    """
    from opforge.bin.compiler import compile as compile_model
    from opforge.engines import writers

    tuned = dict(map(_shape, shapes)) if shapes else tune
    load_packages(packages)
    engine = writers().get(target)
    if engine is not None:
        if precision != "model" or tuned or operators:
            raise ArgumentError(
                "an option of opforge's own files", where=f"--target {target}", expected="--size, --output"
            )
        _write(engine, model, output, sizes, as_json)
        return
    if sizes:
        raise ArgumentError("engines take sizes", where="--size", expected=f"--target {' or '.join(writers())}")
    path = output or model.with_suffix(".bin")
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with progress(f"compiling {model.name}", as_json):
        report = compile_model(model, path, target=target, precision=precision, tune=tuned, operators=operators)
    seconds = time.perf_counter() - started

    def text() -> None:
        click.echo(str(report))
        click.echo(f"wrote {path} ({size_text(path)}) in {seconds:.2f} s")

    content = {"output": str(path), "bytes": path.stat().st_size, "seconds": round(seconds, 3)}
    emit({**content, "report": report.as_dict()}, as_json, text)


def _write(engine: Writer, model: Path, output: Path | None, sizes: tuple[str, ...], as_json: bool) -> None:
    """Write the files of an engine."""
    path = output or model.with_suffix(engine.writes)
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with progress(f"converting {model.name}", as_json):
        written = engine.write(model, path, sizes=parse_sizes(sizes))
    seconds = time.perf_counter() - started

    def text() -> None:
        for note in written.notes:
            click.echo(note)
        click.echo(f"wrote {', '.join(f'{file} ({size_text(file)})' for file in written.files)} in {seconds:.2f} s")

    files = [{"path": str(file), "bytes": file.stat().st_size} for file in written.files]
    emit({"files": files, "notes": list(written.notes), "seconds": round(seconds, 3)}, as_json, text)


def _shape(text: str) -> tuple[str, list[int]]:
    """Read ``x=1x3x640x640``."""
    name, _, sizes = text.rpartition("=")
    parts = sizes.split("x")
    if not name or not all(p.isdecimal() for p in parts):
        raise ArgumentError("not a shape", where="--tune-shape", expected="INPUT=1x3x640x640", got=text)
    return name, [int(p) for p in parts]
