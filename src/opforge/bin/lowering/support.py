"""What the runtime has kernels for, and which libraries a program needs besides."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import onnx

from opforge.bin.encode import STRING
from opforge.bin.layout import VALUE_KINDS
from opforge.bin.lowering import coverage
from opforge.bin.lowering._generated.kernels import EXECUTOR_OPS, KERNELS, STRINGS
from opforge.bin.lowering.graph import Graph, Node, Value
from opforge.bin.program import RequiredOperator
from opforge.errors import UnsupportedError
from opforge.schema import Operator, registry

__all__ = ["custom_operators", "require_kernels", "required_operators"]


DTYPES = frozenset({*range(1, 14), *range(16, 27)})
"""ONNX numbers of the types of runtime/program/kernel_api.h."""


KINDS = frozenset(VALUE_KINDS)

EXECUTED = frozenset(EXECUTOR_OPS)
"""Standard operators that need no kernel: the runtime's executor does them (runtime/session/executor_ops.def)."""


def _type_name(value: Value) -> str:
    name = onnx.TensorProto.DataType.Name(value.dtype)
    return name if value.kind == "tensor" else f"{value.kind} of {name}"


def _served(node: Node) -> bool:
    if node.domain == "" and node.op in EXECUTED:
        return True
    return any(first <= node.since <= last for first, last in KERNELS.get((node.domain, node.op), ()))


def _takes_strings(node: Node) -> bool:
    values = (v for v in (*node.inputs, *node.outputs) if v is not None)
    known = (node.domain, node.op) in STRINGS or (node.domain == "" and node.op in EXECUTED)
    return known or all(v.dtype != STRING for v in values)


def require_kernels(graph: Graph) -> None:
    """Raise UnsupportedError that lists every node without a kernel and every value of a type that none takes."""
    places = []
    strange = (v for g in graph.walk() for v in g.values() if v.dtype not in DTYPES or v.kind not in KINDS)
    for value in dict.fromkeys(strange):
        places.append(coverage.Place(_type_name(value), value.name, "the runtime has no tensors of this type"))
    known = sorted({name for domain, name in KERNELS if domain == ""} | EXECUTED)
    for node in (n for g in graph.walk() for n in g.nodes):
        where = ", ".join(node.origin) or next((o.name for o in node.outputs if o is not None), "?")
        if node.domain not in ("", "opforge") or _served(node):
            if not _takes_strings(node):
                places.append(coverage.Place(node.op, where, "its kernel takes and gives no tensors of strings"))
            continue
        if (node.domain, node.op) in KERNELS:
            why = f"the runtime has no kernel for its version {node.since}"
            places.append(coverage.Place(node.op, where, why))
        else:
            near = registry.nearest(node.op, known)
            places.append(coverage.Place(node.op, where, coverage.reason("", node.op), near))
    if places:
        raise UnsupportedError(
            "the model has nodes that cannot run",
            expected="operators of docs/operators.md, on tensors of the types that they serve",
            got="".join(f"\n    {line}" for line in coverage.describe(places)),
        )


def _operators(graph: Graph) -> dict[str, Operator]:
    found: dict[str, Operator] = {}
    for node in (n for g in graph.walk() for n in g.nodes):
        if node.domain not in ("", "opforge"):
            operator = registry.get(node.domain, node.op, node.since)
            found[operator.key] = operator
    return found


def required_operators(graph: Graph) -> list[RequiredOperator]:
    """List the kernel operators that come from libraries."""
    rows = []
    for operator in _operators(graph).values():
        rows.append(
            RequiredOperator(
                domain=operator.domain,
                name=operator.name,
                version=operator.since_version,
                library=_library(operator),
                schema_hash=operator.schema_hash,
                content_hash=_content_hash(operator),
                signature=str(operator.signature),
                types=operator.types_text,
            )
        )
    return rows


def _library(operator: Operator) -> str:
    return operator.package or operator.host_namespace


def _content_hash(operator: Operator) -> str:
    """Return the content hash of the operator's built library where its manifest is on the search path, else ""."""
    name = f"{_library(operator).replace('.', '_')}.manifest.json"
    for folder in filter(None, os.environ.get("OPFORGE_LIBRARY_PATH", "").split(os.pathsep)):
        path = Path(folder) / name
        if path.is_file():
            return str(json.loads(path.read_text("utf-8")).get("content_hash", ""))
    return ""


def custom_operators(graph: Graph) -> dict[str, str]:
    """Say how each custom operator of the model runs."""
    counts: Counter[str] = Counter()
    for node in (n for g in graph.walk() for n in g.nodes):
        counts.update(r for r in node.attributes.get("rows", []) if "::" in r)
    found = {name: f"formula bytecode in {count} nodes" for name, count in counts.items()}
    for key, operator in _operators(graph).items():
        found[key] = f"kernel of library {_library(operator)}"
    return found
