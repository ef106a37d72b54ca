"""``opforge compare``: the same inputs through several engines."""

from __future__ import annotations

from pathlib import Path

import click

from opforge.cli._output import emit, json_option, progress, table
from opforge.cli._targets import load_factory, load_packages, parse_inputs, parse_sizes

__all__ = ["command"]


@click.command("compare")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--engine", "names", multiple=True, help="Engine, repeatable; the last is the reference. [default: opforge onnxruntime]")
@click.option("--bin", "bin_path", type=click.Path(exists=True, path_type=Path), help="A .bin that opforge runs instead of compiling MODEL.")
@click.option("--torch", "factory", help="module.py:factory that returns a torch module taking the model's inputs in order.")
@click.option("--input", "words", multiple=True, help="NAME=FILE.npy, repeatable.")
@click.option("--npz", type=click.Path(exists=True, path_type=Path), help="All inputs in one .npz file.")
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--rtol", default=1e-4, show_default=True)
@click.option("--atol", default=1e-5, show_default=True)
@click.option("--threads", type=int, help="Threads per engine.")
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
    """Run MODEL on the same inputs in every engine; exit 1 when outputs differ by more than the tolerance."""
    from opforge.verify import compare
    from opforge.verify.torch_runner import torch_runner

    load_packages(packages)
    engines: dict[str, object] = {}
    if factory:
        engines["torch"] = torch_runner(load_factory(factory)(), model)
    for name in names or ("opforge", "onnxruntime"):
        engines[name] = bin_path if name == "opforge" and bin_path else model
    with progress("running the engines", as_json):
        result = compare(
            model,
            npz or (parse_inputs(words) if words else None),
            engines=engines,  # type: ignore[arg-type]
            rtol=rtol,
            atol=atol,
            seed=seed,
            sizes=parse_sizes(sizes),
            threads=threads,
        )

    def text() -> None:
        rows = [
            (
                row.engine,
                row.output,
                f"{row.difference.max_abs:.3g}",
                f"{row.difference.mean_abs:.3g}",
                f"{row.difference.max_rel:.3g}",
                f"{row.difference.cosine:.9f}",
                "same" if row.difference.same_pattern else "DIFFERENT",
                "ok" if row.difference.passed else "FAILED",
            )
            for row in result.rows
        ]
        head = ("engine", "output", "max |error|", "mean |error|", "max relative", "cosine", "NaN/Inf", "verdict")
        table(f"against {result.reference}, tolerance {result.atol:g} + {result.rtol:g}*|expected|", head, rows)

    emit(result.as_dict(), as_json, text)
    return 0 if result.passed else 1
