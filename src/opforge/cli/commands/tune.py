"""``opforge tune``: the fastest launch of an operator's CUDA kernels on this machine's GPU, measured and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from opforge.cli._output import emit, json_option, progress, table
from opforge.cli._targets import author_code, load_operators
from opforge.errors import ArgumentError

if TYPE_CHECKING:
    from opforge.verify.tuning import Tuned

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge tune my_gate                       every operator of a folder, package or .py file
  opforge tune opforge.ops:SparseMatMul --dtype f16
"""


@click.command("tune", short_help="The fastest launch of CUDA kernels on this GPU, measured and kept.", epilog=_EPILOG)
@click.argument("target")
@click.option("--dtype", "dtypes", multiple=True, help="Dtype to tune for, repeatable. [default: f32, f16, bf16]")
@click.option(
    "--variant",
    default="",
    help="A variant that is asked for by name: it alone is measured, and an error says why where it cannot be had.",
)
@click.option("--gpu", default=0, show_default=True, type=click.IntRange(0), help="Number of the GPU.")
@click.option(
    "--largest",
    default=1 << 27,
    show_default=True,
    type=click.IntRange(1),
    help="Elements of all tensors of a call together, beyond which nothing is measured.",
)
@click.option(
    "--seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Per operator; then no further point is begun.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of inputs and of the order of the rounds.")
@json_option
def command(
    target: str, dtypes: tuple[str, ...], variant: str, gpu: int, largest: int, seconds: float, seed: int, as_json: bool
) -> int:
    """Tune the operators of TARGET and their gradients: a package, folder, .py file or `PACKAGE:Operator`.

    Tried are threads of a block and elements of a thread, and for kernel operators the variants that TUNING in their
    cases.py names. The result is kept per GPU, driver, operator, dtype and class of size, and used whenever the
    operator's library is loaded from then on. Exit code 2 where there is no GPU, for a dtype or a variant that no
    operator has, and for a variant that cannot be had here.
    """
    from opforge.bin.native import fault_of
    from opforge.build import device_library, tuning
    from opforge.cuda.device import Session
    from opforge.verify.tuning import agreed, tune_operator, variants_of, wanted_dtypes

    rows: list[Tuned] = []
    session = Session(gpu)
    device = session.device
    tuning.require_writable(device.name, device.driver)
    with session, author_code("the operator cannot be tuned", target):
        operators = load_operators(target)
        members = [one for operator in operators for one in (operator, *operator.derived)]
        chosen = wanted_dtypes(members, dtypes)
        having = {one.key for one in members if not variant or variant in variants_of(one)}
        if not having:
            known = sorted({name for one in members for name in variants_of(one)})
            raise ArgumentError("no operator has this variant", where=target, expected=", ".join(known), got=variant)
        for operator in operators:
            if not having & {one.key for one in (operator, *operator.derived)}:
                continue
            with progress(f"building {operator.name} for the GPU", as_json) as renamed:
                library = device_library(operator, "cuda")
                for member in (one for one in (operator, *operator.derived) if one.key in having):
                    renamed(f"tuning {member.name}")
                    with fault_of(f"{member.qualified_name} is tuned"):
                        rows += tune_operator(
                            member,
                            session,
                            library,
                            dtypes=chosen,
                            largest=largest,
                            seconds=seconds,
                            seed=seed,
                            variant=variant,
                        )
    kept = agreed(rows)
    file = tuning.store_choices(device.name, device.driver, kept)

    def text() -> None:
        heads = ("operator", "dtype", "inputs", "us", "as it was", "gain", "choice", "faster", "left out")
        table(f"{device.name}, CUDA {device.driver}", heads, [_row(row) for row in rows])
        for reason in dict.fromkeys(f"left out {text}: {why}" for row in rows for text, why in row.refused.items()):
            click.echo(reason)
        click.echo(f"{len(kept)} rows kept in {file}" if rows else "nothing to tune: no case fits")

    content = {"device": device.name, "driver": device.driver, "file": str(file), "rows": [r.as_dict() for r in rows]}
    emit(content, as_json, text)
    return 0


def _row(row: Tuned) -> tuple[object, ...]:
    fastest = min(row.tried, key=lambda text: row.tried[text])
    gain = row.untuned / row.seconds if row.seconds > 0 else 1.0
    faster = row.kept and fastest != row.text and row.tried[fastest] < 0.98 * row.seconds
    return (
        row.operator,
        ",".join(row.dtypes),
        row.shape,
        f"{row.seconds * 1e6:.1f}",
        f"{row.untuned * 1e6:.1f}",
        f"{gain:.2f}x",
        row.text if row.kept or row.text == "as it is" else f"{row.text} (not kept)",
        f"{fastest}: {row.tried[fastest] * 1e6:.1f}, not kept" if faster else "",
        ", ".join(row.refused),
    )
