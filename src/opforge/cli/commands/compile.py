"""``opforge compile``: an ONNX model to one .bin."""

from __future__ import annotations

import time
from pathlib import Path

import click

from opforge.cli._output import emit, json_option, progress, size_text
from opforge.cli._targets import load_packages

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge compile model.onnx                       writes model.bin beside it
  opforge compile gate.onnx -o gate.bin --package my_gate
  opforge inspect gate.bin                         what went into it
"""


@click.command("compile", short_help="An .onnx model to one .bin.", epilog=_EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The .bin to write. [default: beside MODEL]")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@click.option("--target", default="cpu", show_default=True, help="What the file is compiled for.")
@click.option(
    "--precision", default="model", show_default=True, help="Internal precision; `model` keeps the model's dtypes."
)
@click.option(
    "--operators",
    type=click.Choice(["registry", "body"]),
    help="Where a custom node's meaning comes from when its body and the registered operator disagree.",
)
@json_option
def command(
    model: Path,
    output: Path | None,
    packages: tuple[str, ...],
    target: str,
    precision: str,
    operators: str | None,
    as_json: bool,
) -> None:
    """Compile MODEL to a .bin, which runs without Python, frameworks or compilers.

    Formula operators travel inside the file. Kernel operators are named in it, and their library is looked for
    where it runs. Nodes that nothing serves are an error that lists all of them; nothing is written then.
    """
    from opforge.bin.compiler import compile as compile_model

    load_packages(packages)
    path = output or model.with_suffix(".bin")
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with progress(f"compiling {model.name}", as_json):
        report = compile_model(model, path, target=target, precision=precision, operators=operators)
    seconds = time.perf_counter() - started

    def text() -> None:
        click.echo(str(report))
        click.echo(f"wrote {path} ({size_text(path)}) in {seconds:.2f} s")

    content = {"output": str(path), "bytes": path.stat().st_size, "seconds": round(seconds, 3)}
    emit({**content, "report": report.as_dict()}, as_json, text)
