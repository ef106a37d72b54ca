"""What a toolchain would find no kernel for, said before it is asked, and where a model can be cut because of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from opforge.errors import ArgumentError
from opforge.onnx._walk import nodes, opset_versions
from opforge.onnx.functions import complete_model
from opforge.onnx.inline import inline_functions
from opforge.onnx.simplification import simplify
from opforge.targets._rows import TOOLCHAINS, Toolchain

if TYPE_CHECKING:
    import onnx

__all__ = ["NodeSupport", "Part", "TargetReport", "target_report"]

_FREE = frozenset({"Constant"})
"""Operators that become weights: no toolchain computes them."""


@dataclass(frozen=True)
class NodeSupport:
    """A node of the model.

    Attributes:
        node: its name, or its first output's.
        operator: ``domain::Name``, or the plain name of a standard operator.
        path: of the graph that it stands in.
        state: "kernel" (the toolchain lists it), "rewritten" (simplified, its body inlined, it is gone, or consists of
            operators that are listed), or "none".
        reason: why it has no kernel, or what becomes of it.
        to_do: what may be done; "" where nothing has to be.
    """

    node: str
    operator: str
    path: str
    state: str
    reason: str = ""
    to_do: str = ""


@dataclass(frozen=True)
class Part:
    """Nodes that run in one piece, on the device or on the host, with what goes in and out.

    They are those of the simplified model, bodies inlined.
    """

    device: bool
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class TargetReport:
    """A model against a toolchain's list.

    Attributes:
        toolchain: the row.
        opset: of the model's default domain.
        nodes: those of the graph and its subgraphs.
        parts: the graph in pieces, in an order in which they can run.
    """

    toolchain: Toolchain
    opset: int
    nodes: list[NodeSupport]
    parts: list[Part]

    @property
    def opset_fits(self) -> bool:
        """Whether the toolchain reads the model's opset."""
        return self.toolchain.opsets[0] <= self.opset <= self.toolchain.opsets[1]

    @property
    def passed(self) -> bool:
        """Whether the whole model would be taken as it is."""
        return self.opset_fits and all(node.state == "kernel" for node in self.nodes)

    def as_dict(self) -> dict[str, Any]:
        """Give plain data."""
        row = self.toolchain
        return {
            "target": row.name, "title": row.title, "source": row.source, "note": row.note, "passed": self.passed,
            "opset": self.opset, "opsets": list(row.opsets), "opset_fits": self.opset_fits,
            "nodes": [asdict(node) for node in self.nodes], "parts": [asdict(part) for part in self.parts],
        }  # fmt: skip


def target_report(model: onnx.ModelProto, name: str) -> TargetReport:
    """Hold a model against what a toolchain publishes; the toolchain is not run.

    Args:
        model: with function bodies for its own operators, or operators that are registered.
        name: of a row of ``TOOLCHAINS``.

    Raises:
        ArgumentError: there is no such toolchain.
    """
    row = TOOLCHAINS.get(name)
    if row is None:
        raise ArgumentError("there is no such toolchain", where="target", expected=", ".join(TOOLCHAINS), got=name)
    whole = type(model)()
    whole.CopyFrom(model)
    complete_model(whole)
    plain = simplify(inline_functions(whole))
    left = frozenset(_kind(place.node) for place in nodes(plain, functions=False))
    model_of = _Model(row, {(f.domain, f.name): f for f in whole.functions}, left)
    places = [place for place in nodes(whole, functions=False) if place.node.op_type not in _FREE]
    found = [model_of.support(place.node, place.path) for place in places]
    return TargetReport(row, opset_versions(model).get("", 1), found, _parts(row, plain.graph))


@dataclass(frozen=True)
class _Model:
    """A row, the bodies of a model, and the operators that are left of it when it is inlined and simplified."""

    row: Toolchain
    bodies: Mapping[tuple[str, str], onnx.FunctionProto]
    left: frozenset[str]

    def support(self, node: onnx.NodeProto, path: str) -> NodeSupport:
        name, kind = node.name or next(filter(None, node.output), ""), _kind(node)
        if _listed(self.row, node):
            return NodeSupport(name, kind, path, "kernel")
        body = self.bodies.get((node.domain, node.op_type))
        lacking = sorted(set(self._lacking([node] if body is None else body.node)))
        if not lacking:
            gone = "it goes when the model is simplified" if body is None else "its body is of listed operators"
            return NodeSupport(name, kind, path, "rewritten", gone, "opforge simplify MODEL --inline")
        reason = "no available kernel implementation is listed"
        reason += f", nor for {', '.join(lacking)} of its body" if body is not None else ""
        to_do = f"leave it to the host, between the parts below; or {self.row.own}"
        return NodeSupport(name, kind, path, "none", reason, to_do)

    def _lacking(self, body: Iterable[onnx.NodeProto]) -> Iterator[str]:
        """Operators, of bodies that are called too, that are not in the list and do not go by themselves."""
        for node in body:
            inner = self.bodies.get((node.domain, node.op_type))
            if inner is not None:
                yield from self._lacking(inner.node)
            elif not _listed(self.row, node) and _kind(node) in self.left:
                yield _kind(node)


def _kind(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def _listed(row: Toolchain, node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and (node.op_type in row.operators or node.op_type in _FREE)


def _parts(row: Toolchain, graph: onnx.GraphProto) -> list[Part]:
    """Cut a graph so that every part can run as soon as those before it have: as few turns as its longest way has.

    A node belongs to the earliest turn in which all that it reads is there; device and host take turns. A node with
    subgraphs is the host's as soon as one node inside is.
    """
    turns: dict[str, int] = {}
    members: dict[int, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.op_type in _FREE and not node.domain:
            continue
        device = _whole(row, node)
        last = max((turns[name] for name in _reads(node) if name in turns), default=0)
        turn = last if (last % 2 == 0) == device else last + 1
        members.setdefault(turn, []).append(node)
        turns.update({name: turn for name in node.output if name})
    results = {info.name for info in graph.output}
    constants = {t.name for t in graph.initializer} | {n.output[0] for n in graph.node if n.op_type in _FREE}
    found = []
    for turn in sorted(members):
        inside = members[turn]
        made = {name for node in inside for name in node.output if name}
        read = dict.fromkeys(name for node in inside for name in _reads(node))
        elsewhere = {name for other, rest in members.items() if other != turn for n in rest for name in _reads(n)}
        found.append(
            Part(
                turn % 2 == 0,
                tuple(node.name or node.output[0] for node in inside),
                tuple(name for name in read if name not in made and name not in constants),
                tuple(name for n in inside for name in n.output if name in results or name in elsewhere),
            )
        )
    return found


def _whole(row: Toolchain, node: onnx.NodeProto) -> bool:
    inner = [g for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]
    return _listed(row, node) and all(_whole(row, n) for graph in inner for n in graph.node)


def _reads(node: onnx.NodeProto) -> Sequence[str]:
    """Names that a node reads, those of its subgraphs among them."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            names += [name for inner in graph.node for name in _reads(inner)]
    return names
