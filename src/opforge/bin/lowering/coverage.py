"""Which operators of ONNX a program can hold, by what serves each, and why the others not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

from opforge.bin.lowering import bodies
from opforge.bin.lowering._generated.kernels import EXECUTOR_OPS, KERNELS
from opforge.onnx.elementwise import ROWS
from opforge.passes import _edit
from opforge.passes._opset_rules import RULES
from opforge.schema import registry

__all__ = ["LOWERED", "REASONS", "Place", "describe", "reason", "served_by", "unsupported"]

LOWERED = frozenset("Constant Dropout Identity Scan SequenceMap".split())
"""Operators that the compiler's passes fold, remove or write with others."""

_LEARNING = "a program holds no maps; of operators without them, this form is not served"
_TRAINING = "a program does not differentiate"

REASONS: dict[str, str] = {
    "ImageDecoder": "codecs of image files are outside the runtime",
    "ai.onnx.ml": _LEARNING,
    "ai.onnx.preview.training": _TRAINING,
}
"""Operator or domain -> why no kernel is planned; what has a kernel after all is not asked for its reason."""

OTHERWISE = "the runtime has no kernel for it, and ONNX no function body of operators that have"

BODIES = "served by the function body that ONNX gives it"
WRITTEN = "a body that the compiler writes for the node"


@dataclass(frozen=True)
class Place:
    """A node that cannot be compiled: its operator, where it stands, and why."""

    operator: str
    node: str
    reason: str
    nearest: str | None = None


@cache
def _schemas() -> dict[str, onnx.defs.OpSchema]:
    return {s.name: s for s in onnx.defs.get_all_schemas() if not s.domain and not s.deprecated}


@cache
def _written_by_body(name: str) -> bool:
    schema: Any = _schemas().get(name)
    if schema is None or name in REASONS:
        return False
    if schema.has_context_dependent_function and not schema.has_function:
        return True  # which operators it uses depends on the node
    called = schema.function_body.node if schema.has_function else ()
    return bool(called) and all(n.domain in ("", "ai.onnx") and served_by(n.op_type) is not None for n in called)


def served_by(name: str, domain: str = "") -> str | None:
    """Return what serves an operator of ONNX, None where nothing does."""
    if domain:
        return WRITTEN if (domain, name) in bodies.BODIES else None
    if name in ROWS:
        return "elementwise: formula bytecode, fused with its neighbours"
    if name in LOWERED:
        return "folded, removed or written with others by the compiler"
    if name in EXECUTOR_OPS:
        return "the runtime's executor: control flow, sequences, optionals"
    if ("", name) in KERNELS:
        return "a kernel of the runtime"
    if ("", name) in bodies.BODIES:
        return WRITTEN
    return BODIES if _written_by_body(name) else None


def reason(domain: str, name: str) -> str:
    """Say why an operator that nothing serves is not supported."""
    return REASONS.get(name if not domain else domain, OTHERWISE)


def _fault(node: ir.Node) -> Place | None:
    name, domain = node.op_type, node.domain if node.domain != "ai.onnx" else ""
    where = node.name or node.outputs[0].name or "?"
    if not domain:
        if served_by(name) is not None:
            return None
        if name in _schemas():
            return Place(name, where, reason("", name))
        if any(name == old for old, _ in RULES):
            return None  # an upgrade gives it another name
        known = sorted(_schemas())
        return Place(name, where, "ONNX has no operator of this name", registry.nearest(name, known))
    if registry.find(domain, name, node.graph.opset_imports.get(domain) if node.graph is not None else None):
        return None
    return Place(f"{domain}::{name}", where, reason(domain, name)) if domain in REASONS else None


def unsupported(model: ir.Model) -> list[Place]:
    """Find every node, in subgraphs too, whose operator nothing serves, whatever its types and attributes."""
    return [fault for node in _edit.nodes(model) if (fault := _fault(node)) is not None]


def describe(places: Iterable[Place]) -> Iterator[str]:
    """Write one line for each operator and reason: how many nodes, their names, why, and what is spelt alike."""
    groups: dict[tuple[str, str, str | None], list[str]] = {}
    for place in places:
        groups.setdefault((place.operator, place.reason, place.nearest), []).append(place.node)
    for (operator, why, near), nodes in sorted(groups.items(), key=lambda item: item[0][:2]):
        shown = ", ".join(nodes[:4]) + (", ..." if len(nodes) > 4 else "")
        count = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
        yield f"{operator} ({count}: {shown}): {why}" + (f"; nearest: {near}" if near else "")
