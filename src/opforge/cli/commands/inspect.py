"""``opforge inspect``: what a .bin, an .onnx or a kernel library holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from opforge.cli._output import emit, json_option, table
from opforge.errors import ArgumentError

__all__ = ["command"]


@click.command("inspect")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--sections", is_flag=True, help="Only the section table of a .bin.")
@click.option("--nodes", is_flag=True, help="List every node of a .bin or .onnx.")
@json_option
def command(file: Path, sections: bool, nodes: bool, as_json: bool) -> None:
    """Print what FILE (.bin, .onnx, .so) holds; native code is loaded only for .so."""
    readers: dict[str, Callable[[], tuple[dict[str, Any], Callable[[], None]]]] = {
        ".bin": lambda: _bin(file, sections, nodes),
        ".onnx": lambda: _onnx(file, nodes),
        ".so": lambda: _library(file),
    }
    if file.suffix not in readers:
        raise ArgumentError("unknown kind of file", where=str(file), expected=", ".join(readers), got=file.suffix or "no suffix")
    content, text = readers[file.suffix]()
    emit(content, as_json, text)


def _bin(file: Path, only_sections: bool, list_nodes: bool) -> tuple[dict[str, Any], Callable[[], None]]:
    from opforge.bin.format import read

    opened = read(file)
    rows = [
        {
            "name": section.name,
            "required": section.required,
            "offset": section.offset,
            "size": section.size,
            "records": section.count,
            "crc32c": f"{section.crc:08x}",
        }
        for section in opened.sections
    ]
    content: dict[str, Any] = {"file": str(file), "size": opened.size, "format": opened.version, "min_reader": opened.min_reader, "sections": rows}

    def section_table() -> None:
        heads = ("section", "required", "offset", "bytes", "records", "crc32c")
        table(f"{file} ({opened.size:,} bytes, format {opened.version}, readers from {opened.min_reader})", heads, [
            (r["name"], "yes" if r["required"] else "no", r["offset"], r["size"], r["records"], r["crc32c"]) for r in rows
        ])  # fmt: skip

    if only_sections:
        return content, section_table
    program = opened.program
    main = program.graphs[0]
    described = [_node(program, node) for graph in program.graphs for node in graph.nodes]
    kinds = Counter(f"{n['domain']}::{n['op']}" if n["domain"] else n["op"] for n in described)
    layouts = Counter(v.layout.kind for v in program.values if v.data is None)
    packings = Counter(v.packing or "dense" for v in program.values if v.data is not None)
    content |= {
        "target": program.target,
        "cpu_features": program.cpu_features,
        "inputs": [_value(program.values[i]) for i in main.inputs],
        "outputs": [_value(program.values[i]) for i in main.outputs],
        "operators": dict(kinds.most_common()),
        "layouts": dict(layouts),
        "packings": dict(packings),
        "conversions": kinds.get("opforge::Reorder", 0),
        "required_operators": [vars(r) for r in program.required],
        "metadata": program.metadata,
        "nodes": described,
    }

    def text() -> None:
        section_table()
        click.echo()
        table(None, ("", "name", "dtype", "shape"), [
            (side, v["name"], v["dtype"], v["shape"]) for side in ("inputs", "outputs") for v in content[side]
        ])  # fmt: skip
        click.echo()
        table(None, ("operator", "nodes"), kinds.most_common())
        click.echo(f"\nlayouts: {dict(layouts)}; weights: {dict(packings)}; layout conversions: {content['conversions']}")
        for item in program.required:
            click.echo(f"needs {item.domain}::{item.name}:{item.version} from the library {item.library}")
        for key, value in program.metadata.items():
            click.echo(f"{key}: {value}")
        if list_nodes:
            click.echo()
            table(None, ("node", "inputs", "outputs", "from"), [
                (f"{n['domain']}::{n['op']}" if n["domain"] else n["op"], ", ".join(n["inputs"]), ", ".join(n["outputs"]), ", ".join(n["origin"]))
                for n in described
            ])  # fmt: skip

    return content, text


def _dtype(number: int) -> str:
    import onnx

    return onnx.TensorProto.DataType.Name(number).lower()


def _value(value: Any) -> dict[str, Any]:  # noqa: ANN401 - opforge.bin.program.Value
    return {"name": value.name, "dtype": _dtype(value.dtype), "shape": value.shape, "layout": value.layout.kind}


def _node(program: Any, node: Any) -> dict[str, Any]:  # noqa: ANN401
    names = [value.name for value in program.values]
    return {
        "domain": node.domain,
        "op": node.op,
        "inputs": ["" if i < 0 else names[i] for i in node.inputs],
        "outputs": ["" if i < 0 else names[i] for i in node.outputs],
        "attributes": {k: f"{len(v)} bytes" if isinstance(v, bytes) else v for k, v in node.attributes.items()},
        "origin": node.origin,
    }


def _onnx(file: Path, list_nodes: bool) -> tuple[dict[str, Any], Callable[[], None]]:
    import onnx

    from opforge.onnx import check_model
    from opforge.onnx._walk import nodes

    model = onnx.load(str(file), load_external_data=False)
    places = list(nodes(model, functions=False))
    kinds = Counter(f"{p.node.domain}::{p.node.op_type}" if p.node.domain else p.node.op_type for p in places)
    initializers = {i.name for i in model.graph.initializer}

    def info(item: Any) -> dict[str, Any]:  # noqa: ANN401
        tensor = item.type.tensor_type
        return {"name": item.name, "dtype": _dtype(tensor.elem_type), "shape": [d.dim_param or d.dim_value for d in tensor.shape.dim]}

    problems = check_model(model)
    content = {
        "file": str(file),
        "ir_version": model.ir_version,
        "opset_imports": {i.domain or "ai.onnx": i.version for i in model.opset_import},
        "inputs": [info(i) for i in model.graph.input if i.name not in initializers],
        "outputs": [info(o) for o in model.graph.output],
        "operators": dict(kinds.most_common()),
        "functions": [f"{f.domain}::{f.name}" for f in model.functions],
        "metadata": {p.key: p.value for p in model.metadata_props},
        "problems": [str(p) for p in problems],
    }

    def text() -> None:
        imports = ", ".join(f"{d} {v}" for d, v in content["opset_imports"].items())
        click.echo(f"{file}: ir_version {model.ir_version}, domains {imports}")
        table(None, ("", "name", "dtype", "shape"), [(s, v["name"], v["dtype"], v["shape"]) for s in ("inputs", "outputs") for v in content[s]])
        click.echo()
        table(None, ("operator", "nodes"), kinds.most_common())
        if model.functions:
            click.echo("function bodies: " + ", ".join(content["functions"]))
        for key, value in content["metadata"].items():
            # A hint for people: metadata is never imported or run.
            click.echo(f"metadata {key}: {value if len(value) < 400 else value[:400] + ' ...'}")
        for problem in problems:
            click.echo(f"problem: {problem}")
        if list_nodes:
            table(None, ("where", "name", "operator", "inputs", "outputs"), [
                (p.path, p.node.name, f"{p.node.domain}::{p.node.op_type}" if p.node.domain else p.node.op_type, ", ".join(p.node.input), ", ".join(p.node.output))
                for p in places
            ])  # fmt: skip

    return content, text


def _library(file: Path) -> tuple[dict[str, Any], Callable[[], None]]:
    from opforge.build import load_library, manifest

    content = manifest(load_library(file.resolve()))

    def text() -> None:
        click.echo(f"{file}: {content['id']} {content['version']}, ABI {content['abi']}, content {content['content_hash'][:16]}")
        click.echo(f"built with {content['build']}")
        table(None, ("operator", "since", "kernels", "signature"), [
            (f"{o['domain']}::{o['name']}", o["since_version"], len(o["kernels"]), o["signature"]) for o in content["operators"]
        ])  # fmt: skip

    return content, text
