"""``opforge build``: compile operator packages ahead of time, make their wheels, build host accelerators."""

from __future__ import annotations

import time
from pathlib import Path

import click

from opforge.cli._output import emit, json_option, progress
from opforge.errors import ArgumentError

__all__ = ["command"]


@click.command("build")
@click.argument("target", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the library and its manifest (default: TARGET's own _lib).")
@click.option("--wheel", is_flag=True, help="Make a wheel of the operator package with the library inside.")
@click.option("--host", type=click.Choice(["torch"]), help="Build the host's accelerator for the installed version instead.")
@json_option
def command(target: str | None, out: Path | None, wheel: bool, host: str | None, as_json: bool) -> None:
    """Compile the operators of TARGET (package, folder or file) into one kernel library."""
    started = time.perf_counter()
    if host is not None:
        from opforge.frameworks.torch import build_accelerator

        with progress(f"building the {host} accelerator", as_json):
            made = [build_accelerator()]
    elif target is None:
        raise ArgumentError("say what to build", where="build", expected="a package, a folder, or --host torch")
    elif wheel:
        from opforge.build.wheel import build_wheel

        with progress(f"building the wheel of {target}", as_json):
            made = [build_wheel(target, out or Path("dist"))]
    else:
        from opforge.build import build_package
        from opforge.build.package import default_folder

        with progress(f"building {target}", as_json):
            library = build_package(target, out or default_folder(target))
        made = [library, library.with_suffix(".manifest.json")]
    seconds = time.perf_counter() - started

    def text() -> None:
        for path in made:
            click.echo(f"made {path}")
        click.echo(f"in {seconds:.2f} s")

    emit({"files": [str(p) for p in made], "seconds": round(seconds, 3)}, as_json, text)
