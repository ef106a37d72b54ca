"""``opforge export``: a torch module, or one operator, to ONNX."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from opforge.cli._output import emit, json_option, progress
from opforge.cli._targets import load_factory, load_operators, load_packages, split_target
from opforge.errors import ArgumentError

__all__ = ["command"]


@click.command("export")
@click.argument("target")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The .onnx to write (default: the factory's or operator's name).")
@click.option("--dtype", "dtypes", multiple=True, help="T=f16: dtype of a type variable (one-operator models).")
@click.option("--attribute", "attributes", multiple=True, help="NAME=VALUE of the operator (one-operator models).")
@click.option("--opset", type=int, help="Version of the default domain. [default: 20]")
@click.option("--no-dynamo", is_flag=True, help="Use torch's TorchScript exporter.")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that the module uses.")
@json_option
def command(
    target: str,
    output: Path | None,
    dtypes: tuple[str, ...],
    attributes: tuple[str, ...],
    opset: int | None,
    no_dynamo: bool,
    packages: tuple[str, ...],
    as_json: bool,
) -> None:
    """Export TARGET.

    TARGET is `module.py:factory`, where the factory returns (module, example inputs) or (module, example inputs,
    options of of.torch.export); or `PACKAGE:Operator`, which gives a model with that one node.
    """
    load_packages(packages)
    where, name = split_target(target)
    if name is None:
        raise ArgumentError("say what to export", where=target, expected="module.py:factory or PACKAGE:Operator")
    path = output or Path(f"{name}.onnx")
    with progress(f"exporting {target}", as_json):
        model = _operator(target, path, dtypes, attributes, opset) if name[:1].isupper() else _module(target, path, opset, no_dynamo)
    nodes = [f"{n.domain}::{n.op_type}" for n in model.graph.node if n.domain]
    imports = {item.domain or "ai.onnx": item.version for item in model.opset_import}

    def text() -> None:
        click.echo(f"wrote {path}: {len(model.graph.node)} nodes, {len(model.functions)} function bodies")
        click.echo("domains: " + ", ".join(f"{domain} {version}" for domain, version in imports.items()))
        click.echo("custom nodes: " + (", ".join(sorted(set(nodes))) or "none"))

    emit({"output": str(path), "nodes": len(model.graph.node), "custom": nodes, "opset_imports": imports}, as_json, text)


def _operator(target: str, path: Path, dtypes: Sequence[str], attributes: Sequence[str], opset: int | None) -> Any:  # noqa: ANN401
    from opforge.onnx import one_node_model
    from opforge.onnx._write import write_model

    found = load_operators(target)
    if len(found) != 1:
        raise ArgumentError("this names several operators", where=target, got=[op.qualified_name for op in found])
    operator = found[0]
    values = {name: _parse(operator, name, text) for name, text in _pairs(attributes)}
    model = one_node_model(operator, dtypes=dict(_pairs(dtypes)), attributes=values, opset=opset or 20)
    write_model(model, path)
    return model


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ArgumentError("this is no assignment", got=repr(word), expected="NAME=VALUE")
        pairs.append((name, value))
    return pairs


def _parse(operator: Any, name: str, text: str) -> object:  # noqa: ANN401
    """Read an attribute by its declared kind; lists are comma-separated."""
    kinds = {a.name: a.kind for a in operator.signature.attributes}
    if name not in kinds:
        raise ArgumentError(f"there is no attribute {name!r}", where=operator.qualified_name, expected=sorted(kinds))
    one = {"int": int, "float": float, "string": str, "bool": lambda t: {"true": True, "false": False}[t.lower()]}
    try:
        if kinds[name].endswith("s") and kinds[name][:-1] in one:
            return [one[kinds[name][:-1]](part) for part in text.split(",") if part]  # type: ignore[operator]
        return one[kinds[name]](text)  # type: ignore[operator]
    except (ValueError, KeyError) as problem:
        raise ArgumentError(f"the attribute {name!r} cannot be read", where=operator.qualified_name, expected=kinds[name], got=repr(text)) from problem


def _module(target: str, path: Path, opset: int | None, no_dynamo: bool) -> Any:  # noqa: ANN401
    from opforge.onnx.export_torch import export

    factory = load_factory(target)
    result = factory()
    if not isinstance(result, tuple) or len(result) not in (2, 3) or not isinstance(result[1], tuple):
        raise ArgumentError(
            "the factory must return (module, example inputs) or (module, example inputs, options)",
            where=target,
            expected="a torch.nn.Module, a tuple of tensors, and optionally a dict such as {'dynamic_shapes': ...}",
            got=type(result).__name__,
        )
    module, args = result[:2]
    options = dict(result[2]) if len(result) == 3 else {}
    unknown = set(options) - set(inspect.signature(export).parameters)
    if unknown:
        raise ArgumentError("the factory gives unknown options", where=target, got=sorted(unknown))
    if opset is not None:
        options["opset"] = opset
    return export(module, args, path, dynamo=not no_dynamo, **options)
