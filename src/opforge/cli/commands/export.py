"""``opforge export``: a PyTorch, Keras or TensorFlow model, or one operator, to ONNX; a PyTorch model to a .pte."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opforge.cli._models import node_kind
from opforge.cli._output import count_text, emit, json_option, progress, size_text
from opforge.cli._targets import call_factory, load_factory, load_operators, load_packages, parse_pairs, split_target
from opforge.errors import ArgumentError
from opforge.schema.registry import nearest

if TYPE_CHECKING:
    import onnx

    from opforge.schema import Operator

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge export my_gate:MyGate -o gate.onnx --attribute scale=0.5 --dtype T=f16
  opforge export net.py:make -o net.onnx --package my_gate
  opforge export saved_model -o net.onnx --package my_gate
  opforge export net.py:make -o net.pte    for ExecuTorch

\b
A factory, in net.py:
  def make():
      return Net(), (torch.zeros(1, 16),), {"dynamic_shapes": ({0: "N"},)}     # the options may be left out
"""


@click.command("export", short_help="A model, or one operator, to .onnx (or .pte).", epilog=_EPILOG)
@click.argument("target")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The .onnx (or .pte) to write. [default: NAME.onnx]"
)
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
    """Export TARGET: `PACKAGE:Operator`, `module.py:factory` for a model, or the folder of a SavedModel.

    PACKAGE:Operator (also FOLDER: and FILE.py:) gives a model of that one node. A factory returns (module, example
    inputs) or (module, example inputs, options of of.torch.export), a Keras model or a TensorFlow function, alone or
    with its inputs (tf.TensorSpec or examples), or the path of a SavedModel; those of TensorFlow need tf2onnx. Custom
    nodes keep their domain, version and typed attributes; formula operators bring a function body, so that other
    runtimes run the model as it is. Where the output ends in .pte, a PyTorch module is lowered for ExecuTorch instead.
    """
    load_packages(packages)
    _, name = split_target(target)
    saved = (Path(target) / "saved_model.pb").is_file()
    if name is None and saved:
        name = Path(target).name
    if name is None:
        expected = "PACKAGE:Operator, or module.py:factory"
        raise ArgumentError("say what to export", where=target, expected=expected, hint=_offered(target))
    path = output or Path(f"{name}.onnx")
    if path.suffix == ".pte":
        _lower(target, path, saved or name[:1].isupper() or opset is not None or no_dynamo, as_json)
        return
    with progress(f"exporting {target}", as_json):
        if saved:
            model = _tensorflow(target, path, opset)
        elif name[:1].isupper():
            model = _operator(target, path, dtypes, attributes, opset)
        elif dtypes or attributes:
            raise ArgumentError("--dtype and --attribute are for one-operator models", where=target)
        else:
            model = _module(target, path, opset, no_dynamo)
    nodes = [node_kind(n) for n in model.graph.node if n.domain not in ("", "ai.onnx")]
    imports = {item.domain or "ai.onnx": item.version for item in model.opset_import}

    def text() -> None:
        counts = f"{count_text(len(model.graph.node), 'node')}, {count_text(len(model.functions), 'function body')}"
        click.echo(f"wrote {path} ({size_text(path)}): {counts}")
        click.echo("domains: " + ", ".join(f"{domain} {version}" for domain, version in imports.items()))
        kinds = [f"{kind} x {nodes.count(kind)}" for kind in sorted(set(nodes))]
        click.echo("custom nodes: " + (", ".join(kinds) or "none"))

    emit(
        {"output": str(path), "nodes": len(model.graph.node), "custom": nodes, "opset_imports": imports}, as_json, text
    )


def _lower(target: str, path: Path, unfit: bool, as_json: bool) -> None:
    """Lower the module of a factory for ExecuTorch."""
    if unfit:
        raise ArgumentError(
            "only a PyTorch module is lowered for ExecuTorch",
            where=target,
            expected="module.py:factory, without --opset and --no-dynamo",
            hint="write an .onnx instead",
        )
    with progress(f"lowering {target}", as_json):
        _need_torch()
        from opforge.executorch import lower

        module, args, options = _torch_parts(_made(target), lower, target, set())
        lower(module, args, path, **options)
    from opforge.engines.executorch._program import read_program

    called = sorted(set(read_program(path).methods["forward"]))

    def text() -> None:
        click.echo(f"wrote {path} ({size_text(path)})")
        click.echo("operators: " + ", ".join(called))

    emit({"output": str(path), "operators": called}, as_json, text)


def _offered(target: str) -> str | None:
    """Say what TARGET offers where it is an operator package without ``:Operator``."""
    try:
        names = [operator.name for operator in load_operators(target)]
    except Exception:  # it may be anything; what is expected was said
        return None
    return f"write {target}:{names[0]}" + (f" (it has {', '.join(names)})" if len(names) > 1 else "")


def _operator(
    target: str, path: Path, dtypes: Sequence[str], attributes: Sequence[str], opset: int | None
) -> onnx.ModelProto:
    from opforge.onnx import one_node_model
    from opforge.onnx._write import write_model

    found = load_operators(target)
    if len(found) != 1:
        raise ArgumentError("this names several operators", where=target, got=[op.qualified_name for op in found])
    operator = found[0]
    values = {name: _parse(operator, name, text) for name, text in parse_pairs(attributes, "scale=0.5").items()}
    types = parse_pairs(dtypes, "T=f16")
    for variable in types:
        if variable not in operator.types:
            expected = ", ".join(operator.types) or "no type variables"
            raise ArgumentError(
                f"there is no type variable {variable!r}", where=operator.qualified_name, expected=expected
            )
    model = one_node_model(operator, dtypes=types, attributes=values, opset=20 if opset is None else opset)
    write_model(model, path)
    return model


def _flag(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


_READERS: Mapping[str, Callable[[str], object]] = {"int": int, "float": float, "string": str, "bool": _flag}


def _parse(operator: Operator, name: str, text: str) -> object:
    """Read an attribute by its declared kind; lists are comma-separated."""
    kinds = {a.name: a.kind for a in operator.signature.attributes}
    where = operator.qualified_name
    if name not in kinds:
        near = nearest(name, list(kinds))
        hint = f"did you mean {near}?" if near else None
        expected = ", ".join(kinds) or "no attributes"
        raise ArgumentError(f"there is no attribute {name!r}", where=where, expected=expected, hint=hint)
    kind = kinds[name]
    try:
        if kind not in _READERS:
            return [_READERS[kind.removesuffix("s")](part.strip()) for part in text.split(",") if part.strip()]
        return _READERS[kind](text)
    except (ValueError, KeyError):
        expected = kind if kind in _READERS else f"{kind.removesuffix('s')} values between commas"
        raise ArgumentError(
            f"the attribute {name!r} cannot be read", where=where, expected=expected, got=repr(text)
        ) from None


def _module(target: str, path: Path, opset: int | None, no_dynamo: bool) -> onnx.ModelProto:
    result = _made(target)
    if isinstance(result, str | Path) or _is_tensorflow(result):
        return _tensorflow(result, path, opset)
    if isinstance(result, tuple) and len(result) == 2 and _is_tensorflow(result[0]):
        return _tensorflow(result[0], path, opset, result[1])
    _need_torch()
    from opforge.onnx.export_torch import export

    module, args, options = _torch_parts(result, export, target, {"dynamo"})
    if opset is not None:
        options["opset"] = opset
    if no_dynamo and options.get("dynamic_shapes"):
        options["dynamic_shapes"] = _axes(options["dynamic_shapes"], options.get("input_names"), target)
    return export(module, args, path, dynamo=not no_dynamo, **options)


def _made(target: str) -> object:
    made: object = call_factory(load_factory(target), target)
    return made


def _need_torch() -> None:
    if find_spec("torch") is None:
        raise ArgumentError("torch is not installed", where="export", hint="pip install 'opforge[torch]'")


def _torch_parts(
    result: object, export: Callable[..., object], target: str, own: set[str]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Take module, example inputs and options out of what a factory returned; ``own`` options are no factory's."""
    if not isinstance(result, tuple) or len(result) not in (2, 3) or not isinstance(result[1], tuple):
        raise ArgumentError(
            "the factory must return (module, example inputs) or (module, example inputs, options)",
            where=target,
            expected="a torch.nn.Module, a tuple of tensors, and optionally a dict such as {'dynamic_shapes': ...}",
            got=_described(result),
        )
    options = dict(result[2]) if len(result) == 3 else {}
    known = sorted(set(inspect.signature(export).parameters) - {"module", "model", "args", "path"} - own)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ArgumentError("the factory gives unknown options", where=target, expected=known, got=unknown)
    return result[0], result[1], options


def _is_tensorflow(model: object) -> bool:
    return any(base.__module__.partition(".")[0] in ("keras", "tensorflow") for base in type(model).__mro__)


def _tensorflow(
    model: object, path: Path, opset: int | None, signature: Sequence[object] | None = None
) -> onnx.ModelProto:
    if find_spec("tensorflow") is None:
        raise ArgumentError("tensorflow is not installed", where="export", hint="pip install 'opforge[tensorflow]'")
    from opforge.onnx.export_tensorflow import export

    return export(model, path, opset=opset, input_signature=signature)


def _axes(shapes: object, names: Sequence[str] | None, target: str) -> dict[str, dict[int, str]]:
    """Turn dynamic shapes as torch.export takes them, one entry per input, into names of axes by input name."""
    if isinstance(shapes, tuple | list):
        if names is None or len(names) != len(shapes):
            raise ArgumentError(
                "--no-dynamo needs the names of the inputs for dynamic shapes",
                where=target,
                expected="as many 'input_names' among the factory's options as dynamic shapes",
                got=names,
            )
        shapes = dict(zip(names, shapes, strict=True))
    if not isinstance(shapes, Mapping):
        raise ArgumentError("dynamic shapes are one entry per input", where=target, got=type(shapes).__name__)
    rows = {name: axes for name, axes in shapes.items() if axes}
    for name, axes in rows.items():
        if not isinstance(axes, Mapping):
            expected = "{axis: name}, e.g. {0: 'N'}"
            raise ArgumentError(f"the dynamic shape of {name}", where=target, expected=expected, got=repr(axes))
    return {name: {axis: getattr(d, "__name__", str(d)) for axis, d in axes.items()} for name, axes in rows.items()}


def _described(result: object) -> str:
    if isinstance(result, tuple):
        return f"({', '.join(type(item).__name__ for item in result)})"
    return type(result).__name__
