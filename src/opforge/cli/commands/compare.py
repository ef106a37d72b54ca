"""``opforge compare``: the same inputs through several engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opforge.cli._output import emit, json_option, left_out, progress, table
from opforge.cli._targets import author_code, load_factory, load_packages, parse_inputs, parse_sizes
from opforge.errors import ArgumentError

if TYPE_CHECKING:
    from opforge.verify import Comparison
    from opforge.verify.comparison import Runner

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge compare model.onnx --package my_gate            opforge against ONNX Runtime
  opforge compare model.onnx --engine opforge --engine reference     against ONNX's own evaluator
  opforge compare model.onnx --engine all                 every engine that is here
  opforge compare model.onnx --bin model.bin --size N=64
  opforge compare model.onnx --torch net.py:make          also against the torch module
"""


@click.command("compare", short_help="The same inputs through several engines.", epilog=_EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--engine",
    "names",
    multiple=True,
    help="Engine, repeatable, or all that are here; the last is the reference. [default: opforge, onnxruntime; "
    "or ONNX's own evaluator, `reference`, where a custom node has no body]",
)
@click.option(
    "--bin",
    "bin_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A .bin that opforge runs instead of compiling MODEL.",
)
@click.option("--torch", "factory", help="module.py:factory that returns a module, or (module, example inputs, ...).")
@click.option("--input", "words", multiple=True, help="NAME=FILE.npy, repeatable.")
@click.option(
    "--npz", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="All inputs in one .npz file."
)
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--rtol", default=1e-4, show_default=True, help="Allowed error relative to the reference's value.")
@click.option("--atol", default=1e-5, show_default=True, help="Allowed absolute error.")
@click.option("--threads", type=click.IntRange(1), help="Threads per engine.")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@json_option
def command(
    model: Path,
    names: tuple[str, ...],
    bin_path: Path | None,
    factory: str | None,
    words: tuple[str, ...],
    npz: Path | None,
    sizes: tuple[str, ...],
    seed: int,
    rtol: float,
    atol: float,
    threads: int | None,
    packages: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run MODEL on the same inputs in every engine; exit 1 when outputs differ by more than the tolerance.

    An output passes when |error| <= atol + rtol * |reference| everywhere, and NaN and infinities stand at the same
    places. Inputs are random by the model's declared shapes unless --input or --npz gives them.
    """
    from opforge.verify import compare

    if words and npz is not None:
        raise ArgumentError("give --input or --npz, not both", where="compare")
    load_packages(packages)
    engines, skipped = _engines(model, names, bin_path, factory)
    with progress("running the engines", as_json):
        result = compare(
            model,
            npz or (parse_inputs(words) if words else None),
            engines=engines,
            optional=() if skipped is None else set(engines) - {*names, "torch"},
            rtol=rtol,
            atol=atol,
            seed=seed,
            sizes=parse_sizes(sizes),
            threads=threads,
        )
    result.skipped = {**(skipped or {}), **result.skipped}
    emit(result.as_dict(), as_json, lambda: _print(result))
    return 0 if result.passed else 1


def _engines(
    model: Path, names: tuple[str, ...], bin_path: Path | None, factory: str | None
) -> tuple[dict[str, str | Path | Runner], dict[str, str] | None]:
    """Give what runs the model, and the engines that `all` leaves out (None where it is not asked for)."""
    from opforge.verify import choose_engines, default_engines

    found: dict[str, str | Path | Runner] = {}
    if factory:
        from opforge.verify.torch_runner import torch_runner

        make = load_factory(factory)
        with author_code("the factory fails", factory):
            made = make()
        found["torch"] = torch_runner(made[0] if isinstance(made, tuple) else made, model)
    chosen, skipped = choose_engines(names or default_engines(model), model)
    for name in chosen:
        if name == "torch" and factory is None:
            raise ArgumentError("the torch engine needs a module", where="compare", hint="--torch module.py:factory")
        found[name] = found.pop(name) if name in found else bin_path if name == "opforge" and bin_path else model
    return found, skipped if "all" in names else None


def _print(result: Comparison) -> None:
    rows = []
    for row in result.rows:
        d = row.difference
        figures = [f"{v:.3g}" for v in (d.max_abs, d.mean_abs, d.max_rel)] if d.same_shape else ["", "", ""]
        pattern = "other shape" if not d.same_shape else "same" if d.same_pattern else "DIFFERENT"
        cosine = f"{d.cosine:.9f}" if d.same_shape else ""
        rows.append((row.engine, row.output, *figures, cosine, pattern, "ok" if d.passed else "FAILED"))
    head = ("engine", "output", "max |error|", "mean |error|", "max relative", "cosine", "NaN/Inf", "verdict")
    table(f"against {result.reference}, allowed |error| <= {result.atol:g} + {result.rtol:g}*|expected|", head, rows)
    for row in result.rows:
        if not row.difference.passed:
            click.echo(f"FAILED {row.engine}, {row.output}: {row.explain(result)}")
    left_out(result.skipped)
