"""``opforge build``: compile operator packages ahead of time, make their wheels, build host accelerators."""

from __future__ import annotations

import time
from pathlib import Path

import click

from opforge.cli._output import count_text, emit, json_option, path_text, progress, size_text
from opforge.cli._targets import author_code, load_operators
from opforge.errors import ArgumentError

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge build my_gate                    my_gate/_lib/local_test.so, which loading finds by itself
  opforge build my_gate --out libraries    elsewhere; name the folder in OPFORGE_LIBRARY_PATH
  opforge build my_gate_op --wheel         dist/my_gate_op-0.1.0-py3-none-<platform>.whl
  opforge build my_gate --device cuda --arch sm_80,sm_90    the kernels for GPUs, beside: local_test_cuda.so
  opforge build --host torch               once per PyTorch version, for the fastest calls
  opforge build --host openvino            once per OpenVINO version, which the first session does otherwise
"""


@click.command("build", short_help="Compile operators ahead of time, make wheels.", epilog=_EPILOG)
@click.argument("target", required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for what is made. [default: TARGET/_lib, or dist]")
@click.option("--wheel", is_flag=True, help="Make a wheel of the project folder TARGET, with the library inside.")
@click.option(
    "--host", type=click.Choice(["torch", "openvino"]), help="Build what a host needs of its own instead of a TARGET."
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    help="cuda: the kernels for GPUs, in a library beside the one for the CPU; needs nvcc, but no GPU.",
)
@click.option(
    "--arch",
    metavar="LIST",
    help="GPUs to embed code for, beside PTX for later ones. [default: this machine's, or sm_80,sm_90]",
)
@json_option
def command(
    target: str | None, out: Path | None, wheel: bool, host: str | None, device: str, arch: str | None, as_json: bool
) -> None:
    """Compile the operators of TARGET (package, folder or .py file) into a kernel library for each domain.

    Nothing needs to be built for an operator to work: hosts compile at the first call and keep the result. Built
    ahead, the first call is fast, and machines without a compiler can run kernel operators. A wheel's library runs
    on every x86-64-v3 processor (AVX2 and FMA); one built here without --wheel is tuned for this machine.
    """
    started = time.perf_counter()
    if arch is not None and device != "cuda":
        raise ArgumentError("--arch goes with --device cuda", where="build")
    if device == "cuda" and (wheel or host):
        raise ArgumentError("--device cuda goes without --wheel and --host", where="build")
    if host is not None:
        if target is not None or wheel:
            raise ArgumentError("--host goes without TARGET and --wheel", where="build")
        made = [_for_host(host, as_json)]
    elif target is None:
        raise click.UsageError("say what to build: a package, a folder, or --host torch", click.get_current_context())
    elif wheel:
        from opforge.build.wheel import build_wheel

        with progress(f"building the wheel of {target}", as_json), author_code("the package does not load", target):
            made = [build_wheel(target, out or Path("dist"))]
    else:
        from opforge.build.package import build_libraries, default_folder

        operators = load_operators(target)
        with progress(f"compiling {count_text(len(operators), 'operator')} of {target}", as_json):
            chosen = arch.split(",") if arch is not None else None
            folder = out or default_folder(target)
            libraries = build_libraries(operators, folder, device=device, architectures=chosen)
        made = [file for library in libraries for file in (library, library.with_suffix(".manifest.json"))]
    seconds = time.perf_counter() - started

    def text() -> None:
        for path in made:
            click.echo(f"made {path_text(path)} ({size_text(path)})")
        click.echo(f"in {seconds:.2f} s")

    emit({"files": [str(p) for p in made], "seconds": round(seconds, 3)}, as_json, text)


def _for_host(host: str, as_json: bool) -> Path:
    from importlib.util import find_spec

    if find_spec(host) is None:
        raise ArgumentError(f"{host} is not installed", where="build", hint=f"pip install 'opforge[{host}]'")
    if host == "openvino":
        from opforge.openvino import build_adapter

        with progress("building the adapter for this OpenVINO", as_json):
            return build_adapter()
    from opforge.frameworks.torch import build_accelerator

    with progress(f"building the {host} accelerator (a minute or so, once per {host} version)", as_json):
        return build_accelerator()
