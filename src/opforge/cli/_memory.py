"""The memory plan of a .bin: figures for ``opforge inspect --memory``; `opforge.report` draws it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from opforge.cli._models import node_kind
from opforge.cli._output import table
from opforge.errors import ArgumentError
from opforge.report import mib

__all__ = ["memory_plan"]

Reading = tuple[dict[str, Any], Callable[[], None]]
_SHOWN = 12


def memory_plan(file: Path, sizes: Mapping[str, int]) -> Reading:
    """Plan a run and describe its memory.

    Args:
        file: a .bin.
        sizes: for each named dimension, and ``{"input.axis": n}`` for nameless ones; others become 2.
    """
    from opforge.bin.format import read
    from opforge.bin.session import Session
    from opforge.engines import TensorInfo
    from opforge.verify._inputs import input_shapes

    session = Session(file, threads=1)
    infos = [TensorInfo(i.name, i.dtype, tuple(i.shape or ())) for i in session.inputs]
    shapes = input_shapes(infos, sizes)
    session.prepare(shapes)
    statistics = session.statistics
    if statistics["dynamic"]:
        raise ArgumentError(
            "this program has no memory plan",
            where=str(file),
            expected="shapes that follow from the inputs' shapes",
            got="a shape that depends on data, or If or Loop: nodes are placed one by one while it runs",
        )
    program = read(file).program
    nodes = [node for graph in program.graphs for node in graph.nodes]
    buffers: list[dict[str, Any]] = []
    for buffer in session.buffers:
        node = nodes[buffer.id] if buffer.scratch else nodes[buffer.first]
        name = f"scratch of {node_kind(node)}" if buffer.scratch else program.values[buffer.id].name
        halo = not buffer.scratch and any(program.values[buffer.id].layout.halo)
        kind = "scratch" if buffer.scratch else "written over" if buffer.values > 1 else "halo" if halo else "value"
        buffers.append(
            {
                "name": name,
                "kind": kind,
                "node": node_kind(node),
                "values": buffer.values,
                "first": buffer.first,
                "last": buffer.last,
                "offset": buffer.offset,
                "size": buffer.size,
            }
        )
    peak, bound = statistics["arena_bytes"], statistics["live_bytes"]
    content: dict[str, Any] = {
        "file": str(file),
        "inputs": {name: list(shape) for name, shape in shapes.items()},
        "nodes": len(nodes),
        "executed_nodes": statistics["executed_nodes"],
        "peak_bytes": peak,
        "lower_bound_bytes": bound,
        "ratio": round(peak / bound, 4) if bound else 1.0,
        "no_reuse_bytes": sum(b["size"] for b in buffers),
        "views": statistics["views"],
        "in_place": statistics["in_place"],
        "buffers": buffers,
    }

    def text() -> None:
        given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        click.echo(f"{file}: memory of a run with {given}")
        click.echo(
            f"peak {mib(peak)}, lower bound (largest set that lives at one time) {mib(bound)}, "
            f"ratio {content['ratio']:.3f}; without reuse {mib(content['no_reuse_bytes'])}"
        )
        click.echo(
            f"{len(buffers)} buffers for {statistics['executed_nodes']} executed nodes of {len(nodes)}; "
            f"{statistics['views']} views, {statistics['in_place']} results in place"
        )
        largest = sorted(buffers, key=lambda b: -b["size"])[:_SHOWN]
        rows = [(b["name"], b["kind"], mib(b["size"]), mib(b["offset"]), f"{b['first']}-{b['last']}") for b in largest]
        table("largest buffers", ("first value", "kind", "size", "at", "nodes"), rows)

    return content, text
