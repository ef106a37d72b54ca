"""``opforge occupancy``: what CUDA kernels need of a multiprocessor, and what limits them; no GPU is needed."""

from __future__ import annotations

from pathlib import Path

import click

from opforge.cli._output import emit, json_option, table
from opforge.cli._targets import load_operators
from opforge.errors import ArgumentError
from opforge.schema import Operator

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge occupancy my_gate                            the kernels of a package, compiled now
  opforge occupancy kernels.cu --arch sm_80,sm_90      those of a file
  opforge occupancy my_gate/_lib/local_test_cuda.so    those of a library built ahead; needs no nvcc
"""


@click.command("occupancy", short_help="Registers, spills and occupancy of CUDA kernels.", epilog=_EPILOG)
@click.argument("target")
@click.option("--arch", metavar="LIST", help="GPUs to compile for. [default: this machine's, or sm_80,sm_90]")
@click.option("--threads", type=click.IntRange(1, 1024), default=256, show_default=True, help="Threads of a block.")
@click.option("--shared", type=click.IntRange(0), default=0, show_default=True, help="Bytes of dynamic shared memory.")
@json_option
def command(target: str, arch: str | None, threads: int, shared: int, as_json: bool) -> None:
    """Show what the kernels of TARGET (a CUDA library, a .cu file, a package or package:Operator) need.

    Registers, spills and shared memory are what ptxas said; how many blocks a multiprocessor holds follows from the
    limits that NVIDIA documents.
    """
    from opforge.cuda.measure import (
        resources_of_library,
        resources_of_operators,
        resources_of_source,
        unknown_architectures,
        uses,
    )

    chosen = arch.split(",") if arch is not None else None
    path = Path(target)
    if path.suffix == ".so":
        if chosen is not None:
            raise ArgumentError("--arch goes with what is compiled now", where="occupancy", got=f"--arch {arch}")
        found = resources_of_library(path)
    elif path.suffix == ".cu":
        found = resources_of_source(path, chosen)
    else:
        found = resources_of_operators(_operators(target), chosen)
    rows = uses(found, threads, shared)
    unknown = unknown_architectures(found)

    def text() -> None:
        head = ("kernel", "GPU", "registers", "spilled", "shared", "blocks", "occupancy", "limited by", "best block")
        table(
            None,
            head,
            [
                (
                    row.kernel,
                    f"sm_{row.resources.architecture}",
                    str(row.resources.registers),
                    f"{row.resources.spill_stores + row.resources.spill_loads} B",
                    f"{row.resources.shared + row.dynamic} B",
                    str(row.found.blocks),
                    f"{100 * row.found.fraction:.1f} %",
                    row.found.limiting,
                    str(row.best) if row.best else "none fits",
                )
                for row in rows
            ],
        )
        click.echo(f"{len(rows)} kernels, blocks of {threads} threads")
        if unknown:
            click.echo(f"left out: {', '.join(unknown)}, whose limits are not known")

    kernels = [
        {
            "kernel": row.kernel,
            "architecture": f"sm_{row.resources.architecture}",
            "registers": row.resources.registers,
            "spill_stores": row.resources.spill_stores,
            "spill_loads": row.resources.spill_loads,
            "stack": row.resources.stack,
            "shared": row.resources.shared,
            "blocks": row.found.blocks,
            "occupancy": row.found.fraction,
            "limiting": row.found.limiting,
            "best_threads": row.best,
        }
        for row in rows
    ]
    content = {"threads": threads, "dynamic_shared": shared, "kernels": kernels, "unknown_architectures": unknown}
    emit(content, as_json, text)


def _operators(target: str) -> list[Operator]:
    package, _, name = target.partition(":")
    operators = load_operators(package)
    if not name:
        return operators
    named = [operator for operator in operators if operator.name == name]
    if not named:
        known = ", ".join(sorted(operator.name for operator in operators))
        raise ArgumentError("no such operator", where=package, expected=known, got=name)
    return named
