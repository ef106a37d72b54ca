"""Readers of ``opforge inspect``: each gives plain data for JSON and a function that prints the same for people."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opforge.cli._models import dtype_name, node_kind
from opforge.cli._output import shape_text, size_text, table

if TYPE_CHECKING:
    import onnx

    from opforge.bin.program import Program

__all__ = ["bin_file", "library_file", "onnx_file"]

Reading = tuple[dict[str, Any], Callable[[], None]]
_METADATA_LENGTH = 300


def bin_file(file: Path, only_sections: bool, list_nodes: bool) -> Reading:
    """Read a .bin: section table, signature, operators, layouts, what it needs."""
    from opforge.bin.format import read

    opened = read(file)
    program = opened.program
    sections = [
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
    content: dict[str, Any] = {
        "file": str(file),
        "size": opened.size,
        "format": opened.version,
        "min_reader": opened.min_reader,
        "sections": sections,
    }

    def section_table() -> None:
        readers = f"format {opened.version}, for readers from {opened.min_reader}"
        heads = ("section", "required", "offset", "bytes", "records", "crc32c")
        yes = {True: "yes", False: "no"}
        rows = [
            (s["name"], yes[bool(s["required"])], *(s[k] for k in ("offset", "size", "records", "crc32c")))
            for s in sections
        ]
        table(f"{file}: {size_text(file)}, {readers}", heads, rows)

    if only_sections:
        return content, section_table
    graph = program.graphs[0]
    nodes = [node for part in program.graphs for node in part.nodes]
    places = [part.name for part in program.graphs for _ in part.nodes]
    kinds = Counter(node_kind(node) for node in nodes)
    layouts = Counter(value.layout.kind for value in program.values if value.data is None)
    packings = Counter(value.packing or "dense" for value in program.values if value.data is not None)
    content |= {
        "target": program.target,
        "cpu_features": program.cpu_features,
        "inputs": [_value(program.values[i]) for i in graph.inputs],
        "outputs": [_value(program.values[i]) for i in graph.outputs],
        "graphs": len(program.graphs),
        "operators": dict(kinds.most_common()),
        "layouts": dict(layouts),
        "weights": dict(packings),
        "conversions": _conversions(program),
        "required_operators": [
            {
                "domain": item.domain,
                "name": item.name,
                "since_version": item.version,
                "library": item.library,
                "schema_hash": item.schema_hash,
            }
            for item in program.required
        ],
        "metadata": program.metadata,
        "nodes": [{"graph": place, **_node(program, n)} for place, n in zip(places, nodes, strict=True)]
        if list_nodes
        else [],
    }

    def text() -> None:
        section_table()
        click.echo()
        _signature(content["inputs"], content["outputs"])
        click.echo()
        table(None, ("operator", "nodes"), kinds.most_common())
        click.echo(f"target {program.target}; layouts: {_counts(layouts)}; constants: {_counts(packings) or 'none'}")
        for item in content["conversions"]:
            moved = "bytes that depend on the input" if item["bytes"] is None else f"{item['bytes']} bytes"
            click.echo(f"converts {item['from']} to {item['to']}: {item['value']} ({moved})")
        for item in program.required:
            click.echo(f"needs the kernel of {item.domain}::{item.name}:{item.version} (library {item.library})")
        _metadata(content["metadata"])
        if list_nodes:
            click.echo()
            rows = [
                (d["graph"], node_kind(n), _names(d["inputs"]), _names(d["outputs"]), _authored(d), _names(d["origin"]))
                for n, d in zip(nodes, content["nodes"], strict=True)
            ]
            heads = ("graph", "node", "inputs", "outputs", "attributes", "made from")
            first = 0 if len(program.graphs) > 1 else 1
            table(None, heads[first:], [row[first:] for row in rows])

    return content, text


def _conversions(program: Program) -> list[dict[str, Any]]:
    """List the nodes that only change a layout, and the bytes of the logical value where its shape is known."""
    from opforge.bin.decode import NUMPY_DTYPES

    found = []
    for node in (n for part in program.graphs for n in part.nodes):
        if node.domain != "opforge" or node.op != "Reorder":
            continue
        source, target = (program.values[ids[0]] for ids in (node.inputs, node.outputs))
        plain = node.attributes.get("plain") or "plain"
        kinds = [plain if v.layout.kind == "plain" else v.layout.kind for v in (source, target)]
        sizes = [d for d in target.shape or [None] if isinstance(d, int)]
        known = target.shape is not None and len(sizes) == len(target.shape)
        count = NUMPY_DTYPES[target.dtype].itemsize * math.prod(sizes) if known else None
        found.append({"from": kinds[0], "to": kinds[1], "value": source.name, "bytes": count})
    return found


def _with_output_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give outputs without a shape one: ONNX's checker wants it, opforge and other engines do not."""
    for item in model.graph.output:
        kind = item.type.WhichOneof("value")
        if kind == "tensor_type":
            item.type.tensor_type.shape.SetInParent()
    return model


def onnx_file(file: Path, _only_sections: bool, list_nodes: bool) -> Reading:
    """Read an .onnx: imports, signature, operators, bodies, metadata, problems."""
    from opforge.onnx._read import read_model
    from opforge.onnx._walk import nodes
    from opforge.onnx.checker import custom_problems, standard_problems

    model = read_model(file, weights=False)
    places = list(nodes(model, functions=False))
    kinds = Counter(node_kind(place.node) for place in places)
    constants = {item.name for item in model.graph.initializer}
    inputs = [_info(item) for item in model.graph.input if item.name not in constants]
    outputs = [_info(item) for item in model.graph.output]
    imports = {item.domain or "ai.onnx": item.version for item in model.opset_import}
    functions = [f"{f.domain}::{f.name}" for f in model.functions]
    metadata = {item.key: item.value for item in model.metadata_props}
    invalid = [str(problem) for problem in standard_problems(_with_output_shapes(model))]
    problems = [str(problem) for problem in custom_problems(model)] + invalid
    content: dict[str, Any] = {
        "file": str(file),
        "size": file.stat().st_size,
        "ir_version": model.ir_version,
        "opset_imports": imports,
        "inputs": inputs,
        "outputs": outputs,
        "operators": dict(kinds.most_common()),
        "initializers": len(constants),
        "functions": functions,
        "metadata": metadata,
        "problems": problems,
        "valid": not invalid,
        "nodes": [
            {
                "where": p.path,
                "name": p.node.name,
                "op": node_kind(p.node),
                "inputs": list(p.node.input),
                "outputs": list(p.node.output),
            }
            for p in places
            if list_nodes
        ],
    }

    def text() -> None:
        domains = ", ".join(f"{domain} {version}" for domain, version in imports.items())
        click.echo(f"{file}: {size_text(file)}, ir_version {model.ir_version}, domains {domains}")
        _signature(inputs, outputs)
        click.echo()
        table(None, ("operator", "nodes"), kinds.most_common())
        click.echo(f"constants: {len(constants)}; function bodies: {', '.join(functions) or 'none'}")
        _metadata(metadata)
        for problem in problems:
            click.echo(f"problem: {problem}")
        if list_nodes:
            click.echo()
            heads = ("where", "name", "operator", "inputs", "outputs")
            rows = [
                (n["where"], n["name"], n["op"], _names(n["inputs"]), _names(n["outputs"])) for n in content["nodes"]
            ]
            table(None, heads, rows)

    return content, text


def library_file(file: Path, _only_sections: bool, _list_nodes: bool) -> Reading:
    """Read a kernel library's table. This loads native code."""
    from opforge.build import load_library, manifest

    content = {"file": str(file), "size": file.stat().st_size, **manifest(load_library(file.resolve()))}

    def text() -> None:
        click.echo(
            f"{file}: {size_text(file)}, library {content['id']} version {content['version']}, ABI {content['abi']}"
        )
        built = "; ".join(content["build"].split("; ")[:2])  # compiler and profile; --json has the flags too
        click.echo(f"content {content['content_hash'][:16]}, built with {built}")
        click.echo()
        rows = []
        for item in content["operators"]:
            dtypes = sorted({" ".join(kernel["dtypes"]) for kernel in item["kernels"]})
            kind = "gradient" if "gradient" in item["flags"] else "formula" if "formula" in item["flags"] else "kernel"
            rows.append(
                (
                    f"{item['domain']}::{item['name']}:{item['since_version']}",
                    kind,
                    ", ".join(dtypes),
                    item["signature"],
                )
            )
        table(None, ("operator", "kind", "dtypes", "signature"), rows)

    return content, text


def _value(value: Any) -> dict[str, Any]:  # noqa: ANN401 - opforge.bin.program.Value
    return {
        "name": value.name,
        "dtype": dtype_name(value.dtype),
        "shape": value.shape,
        "layout": value.layout.kind,
        "kind": value.kind,
    }


def _node(program: Any, node: Any) -> dict[str, Any]:  # noqa: ANN401 - opforge.bin.program
    names = [value.name for value in program.values]
    return {
        "domain": node.domain,
        "op": node.op,
        "inputs": ["" if i < 0 else names[i] for i in node.inputs],
        "outputs": ["" if i < 0 else names[i] for i in node.outputs],
        "attributes": {k: _attribute(program, v) for k, v in node.attributes.items()},
        "origin": node.origin,
    }


def _authored(node: Mapping[str, Any]) -> str:
    """Attributes of an author's operator; those of others say what its name and shapes say."""
    if node["domain"] in ("", "opforge"):
        return ""
    return ", ".join(f"{name}={value}" for name, value in node["attributes"].items())


def _attribute(program: Any, value: Any) -> Any:  # noqa: ANN401 - opforge.bin.program
    from opforge.bin.program import GraphRef

    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return f"graph {program.graphs[value.index].name}" if isinstance(value, GraphRef) else value


def _info(item: Any) -> dict[str, Any]:  # noqa: ANN401 - onnx.ValueInfoProto
    held, kind = item.type, "tensor"
    if held.HasField("optional_type"):
        held, kind = held.optional_type.elem_type, "optional"
    if held.HasField("sequence_type"):
        held, kind = held.sequence_type.elem_type, "optional_sequence" if kind == "optional" else "sequence"
    tensor = held.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return {"name": item.name, "dtype": dtype_name(tensor.elem_type), "shape": shape, "kind": kind}


def _signature(inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> None:
    def kind(value: Mapping[str, Any]) -> str:
        return "" if value["kind"] == "tensor" else f"{value['kind'].replace('_', ' ')} of "

    rows = [("input", v["name"], kind(v) + v["dtype"], shape_text(v["shape"])) for v in inputs]
    rows += [("output", v["name"], kind(v) + v["dtype"], shape_text(v["shape"])) for v in outputs]
    table(None, ("", "name", "dtype", "shape"), rows)


def _metadata(metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        if key.endswith("opforge.operators"):
            for item in _operators(value):
                click.echo(f"made with {item}")
        else:
            click.echo(f"{key}: {value if len(value) < _METADATA_LENGTH else value[:_METADATA_LENGTH] + ' ...'}")


def _operators(value: str) -> list[str]:
    """Read our own metadata of operators; what does not look like it is shown as it stands."""
    try:
        rows = json.loads(value)
        return [
            f"{row['domain']}::{row['name']}:{row['version']}"
            + (f" of the package {row['package']}" if row["package"] else "")
            + f", declaration {row['schema_hash'][:12]}"
            for row in rows
        ]
    except (ValueError, KeyError, TypeError):
        return [value[:_METADATA_LENGTH]]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _names(names: Sequence[str]) -> str:
    return ", ".join(name or "-" for name in names)
