"""``opforge simplify``: fold and clean an ONNX model, custom nodes included."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from opforge.cli._output import emit, json_option, progress, table
from opforge.cli._targets import load_packages

__all__ = ["command"]


@click.command("simplify")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path))
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@json_option
def command(model: Path, output: Path, packages: tuple[str, ...], as_json: bool) -> None:
    """Write MODEL simplified: constants folded (custom ones by their own kernels), dead and doubled nodes gone."""
    import onnx

    from opforge.onnx import simplify
    from opforge.onnx._walk import nodes
    from opforge.onnx._write import write_model

    load_packages(packages)
    before = onnx.load(str(model))
    with progress(f"simplifying {model.name}", as_json):
        after = simplify(before)
    write_model(after, output)
    counts = [Counter(_kind(place.node) for place in nodes(m, functions=False)) for m in (before, after)]
    kinds = sorted(set(counts[0]) | set(counts[1]))
    content = {
        "output": str(output),
        "nodes": {"before": counts[0].total(), "after": counts[1].total()},
        "kinds": {kind: [counts[0][kind], counts[1][kind]] for kind in kinds},
    }

    def text() -> None:
        rows: list[tuple[object, ...]] = [(kind, counts[0][kind], counts[1][kind]) for kind in kinds if counts[0][kind] != counts[1][kind]]
        table(None, ("operator", "before", "after"), [*rows, ("all", counts[0].total(), counts[1].total())])
        click.echo(f"wrote {output}")

    emit(content, as_json, text)


def _kind(node: object) -> str:
    domain, name = node.domain, node.op_type  # type: ignore[attr-defined]
    return f"{domain}::{name}" if domain else str(name)
