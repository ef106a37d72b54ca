"""``opforge simplify``: fold and clean an ONNX model, custom nodes included."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from opforge.cli._models import node_kind
from opforge.cli._output import emit, json_option, progress, size_text, table
from opforge.cli._targets import load_packages

__all__ = ["command"]

_EPILOG = """\b
Example:
  opforge simplify model.onnx -o small.onnx --package my_gate
  opforge simplify model.onnx -o plain.onnx --inline        for tools that know no custom nodes
"""


@click.command("simplify", short_help="Fold and clean an .onnx model, custom nodes included.", epilog=_EPILOG)
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The .onnx to write.")
@click.option("--inline", is_flag=True, help="Put the bodies of custom nodes in their place first.")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@json_option
def command(model: Path, output: Path, inline: bool, packages: tuple[str, ...], as_json: bool) -> None:
    """Write MODEL simplified: constants folded, dead, doubled and idle nodes gone, shapes known.

    Custom nodes stay as they are; their shapes are known from the operators' declarations, and those with constant
    inputs are computed by their own kernels. A node of an operator that nobody registered is never folded.
    """
    from opforge.onnx import complete_model, simplify
    from opforge.onnx._read import read_model
    from opforge.onnx._walk import nodes
    from opforge.onnx._write import write_model
    from opforge.onnx.inline import inline_functions

    load_packages(packages)
    before = read_model(model)
    with progress(f"simplifying {model.name}", as_json):
        after = simplify(inline_functions(complete_model(before)) if inline else before)
    write_model(after, output)
    counts = [Counter(node_kind(place.node) for place in nodes(m, functions=False)) for m in (before, after)]
    kinds = sorted(set(counts[0]) | set(counts[1]))
    content = {
        "output": str(output),
        "nodes": {"before": counts[0].total(), "after": counts[1].total()},
        "kinds": {kind: [counts[0][kind], counts[1][kind]] for kind in kinds},
    }

    def text() -> None:
        changed: list[tuple[object, ...]] = [
            (k, counts[0][k], counts[1][k]) for k in kinds if counts[0][k] != counts[1][k]
        ]
        if changed:
            table(None, ("operator", "before", "after"), [*changed, ("all", counts[0].total(), counts[1].total())])
        else:
            click.echo(f"nothing to simplify: {counts[0].total()} nodes")
        click.echo(f"wrote {output} ({size_text(output)})")

    emit(content, as_json, text)
