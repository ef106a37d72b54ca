"""What a compilation did, for people and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from opforge.bin.lowering.graph import Graph, Node
from opforge.bin.program import Program

__all__ = ["CompileReport", "describe"]


@dataclass
class CompileReport:
    """Result of ``opforge.compile``.

    Attributes:
        output: path of the .bin.
        target: what it is compiled for.
        opset: operator set of the model as it came.
        source_nodes: nodes of the model.
        program_nodes: nodes of the program.
        bytes: size of the file.
        weight_bytes: bytes of constants in the file.
        passes: graph pass -> number of places that it changed.
        operators: node of the program -> how often it stands there.
        fused: fused group -> how often; e.g. ``MatMul + Gelu``.
        algorithms: algorithm of a convolution or packing of a matrix product -> how often.
        layouts: layout -> number of values that lie so.
        conversions: layout conversions and dtype conversions that were inserted.
        custom: custom operator -> how it runs.
        tuned: convolution, what tuning chose for it, and its time before and after.
        warnings: what the caller should know.
    """

    output: str = ""
    target: str = "cpu"
    opset: int = 0
    source_nodes: int = 0
    program_nodes: int = 0
    bytes: int = 0
    weight_bytes: int = 0
    passes: dict[str, int] = field(default_factory=dict)
    operators: dict[str, int] = field(default_factory=dict)
    fused: dict[str, int] = field(default_factory=dict)
    algorithms: dict[str, int] = field(default_factory=dict)
    layouts: dict[str, int] = field(default_factory=dict)
    conversions: list[str] = field(default_factory=list)
    custom: dict[str, str] = field(default_factory=dict)
    tuned: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Give plain data, e.g. for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.output or 'program'} for {self.target}",
            f"  nodes        {self.source_nodes} (opset {self.opset}) -> {self.program_nodes}",
            f"  size         {_size(self.bytes)}, weights {_size(self.weight_bytes)}",
            f"  operators    {_counts(self.operators)}",
        ]
        rows = {"fused": self.fused, "algorithms": self.algorithms, "layouts": self.layouts}
        lines += [f"  {title:<13}{_counts(row)}" for title, row in rows.items() if row]
        lines += [f"  custom       {name}: {how}" for name, how in self.custom.items()]
        lines += [f"  conversion   {text}" for text in self.conversions]
        lines += [f"  tuned        {text}" for text in self.tuned]
        lines += [f"  warning      {text}" for text in self.warnings]
        return "\n".join(lines)


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _counts(row: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(row.items(), key=lambda r: (-r[1], r[0])))


def _group(node: Node) -> str | None:
    """Name what was fused into a node."""
    parts = [node.op] if node.op != "Formula" else []
    part = "channels_total" in node.attributes
    if node.attributes.get("activation"):
        parts.append(node.attributes["activation"])
    if node.op == "Conv" and len(node.inputs) > 3 and node.inputs[3] is not None and not part:
        parts.append("residual")
    parts += node.attributes.get("rows", [])
    return " + ".join(parts) if len(parts) > 1 else None


_RECURRENT = "packed gates"
_ALGORITHMS = {
    "MatMul": "matmul",
    "DequantizeMatMul": "matmul of codes",
    "ConvTranspose": "deconvolution",
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
}


def describe(report: CompileReport, graph: Graph, program: Program) -> CompileReport:
    """Fill in what the compiler's graph and the program show."""
    nodes = [node for inner in graph.walk() for node in inner.nodes]
    report.program_nodes = len(nodes)
    report.operators = dict(Counter(n.op if n.domain in ("", "opforge") else f"{n.domain}::{n.op}" for n in nodes))
    report.fused = dict(Counter(g for n in nodes if (g := _group(n)) is not None))
    report.algorithms = dict(
        Counter(
            n.attributes["algorithm"] if n.op == "Conv" else _ALGORITHMS[n.op]
            for n in nodes
            if n.is_made("Conv", *_ALGORITHMS)
        )
    )
    report.layouts = dict(Counter(v.layout.kind for g in graph.walk() for v in g.values() if v.data is None))
    for node in nodes:
        if node.is_made("Reorder") and node.inputs[0] is not None:
            kinds = (node.inputs[0].layout.kind, node.output.layout.kind)
            if node.attributes.get("plain"):
                named = node.attributes["plain"]
                kinds = (named if kinds[0] == "plain" else kinds[0], named if kinds[1] == "plain" else kinds[1])
            report.conversions.append(f"{kinds[0]} -> {kinds[1]}: {node.inputs[0].name}")
    report.weight_bytes = sum(v.data.nbytes for v in program.values if v.data is not None)
    return report
