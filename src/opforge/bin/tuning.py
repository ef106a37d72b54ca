"""``compile(tune=True)``: alternatives of each convolution, measured on this machine, become attributes of its node.

Every alternative is tried on all convolutions that it suits at once: a program is lowered with it, run some times under
the session's profile, and each node's shortest time is compared with that of the untuned program. The shortest time is
what other work on the machine disturbs least.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opforge.bin import format as bin_format
from opforge.bin.lowering.convolution import Choices
from opforge.bin.lowering.graph import Graph
from opforge.bin.program import Program
from opforge.bin.session import Session
from opforge.errors import OpforgeError

__all__ = ["CANDIDATES", "try_tune", "tune"]

CANDIDATES: Mapping[str, Sequence[Mapping[str, int | str]]] = {
    "direct": (
        *({"tile_blocks": n} for n in (2, 3, 4)),
        *({"strip_kb": n} for n in (64, 256, 1024)),
        {"algorithm": "winograd"},
    ),
    "winograd": (*({"winograd_tiles": n} for n in (8, 28, 56)), {"algorithm": "direct"}),
}
"""What is tried instead of a node's default, by its algorithm."""

RUNS = 15
GAIN, LEAST = 0.95, 3e-6
"""A choice is kept when the node takes at most this part of its time, and this many seconds less."""
OPEN_BATCH, OPEN_SIZE = 1, 64
"""Sizes that stand for open dimensions: the first one of an input, and the others."""

Lower = Callable[[Choices], Graph]
Emit = Callable[[Graph], Program]
Shapes = Mapping[str, Sequence[int]]


def tune(lower: Lower, emit: Emit, shapes: Shapes) -> tuple[Choices, list[str]]:
    """Find the choices that are faster here than the defaults.

    Args:
        lower: makes the graph under choices (name of a convolution's result -> attributes).
        emit: makes the program of a graph.
        shapes: of inputs; those that are not there have the model's sizes, and `OPEN_BATCH` or `OPEN_SIZE`.

    Returns:
        The choices, and a line for each that says what it gained.
    """
    graph = lower({})
    algorithms = {n.attributes["key"]: n.attributes["algorithm"] for n in graph.nodes if n.is_made("Conv")}
    if not any(name in CANDIDATES for name in algorithms.values()):
        return {}, []
    base = _times(graph, emit(graph), shapes)
    best: dict[str, tuple[float, Mapping[str, int | str]]] = {}
    for rank in range(max(map(len, CANDIDATES.values()))):
        tried = {k: row[rank] for k, name in algorithms.items() if rank < len(row := CANDIDATES.get(name, ()))}
        if not tried:
            continue
        changed = lower(tried)
        for key, seconds in _times(changed, emit(changed), shapes).items():
            if key in tried and seconds < best.get(key, (np.inf, {}))[0]:
                best[key] = (seconds, tried[key])
    for key, seconds in _times(
        graph, emit(graph), shapes
    ).items():  # once more, lest the machine was busy at the beginning
        base[key] = min(base[key], seconds)
    kept = {k: (t, c) for k, (t, c) in best.items() if t < GAIN * base[k] and t < base[k] - LEAST}
    lines = [
        f"{key}: {_words(choice)}, {base[key] * 1e6:.0f} -> {seconds * 1e6:.0f} us"
        for key, (seconds, choice) in kept.items()
    ]
    return {key: choice for key, (_, choice) in kept.items()}, lines


def _words(choice: Mapping[str, int | str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in choice.items())


def _times(graph: Graph, program: Program, shapes: Shapes) -> dict[str, float]:
    """Return the shortest time of each convolution of the main graph."""
    keys = {
        program.values[made.outputs[0]].name: node.attributes["key"]
        for node, made in zip(graph.nodes, program.graphs[0].nodes, strict=True)
        if node.is_made("Conv")
    }
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="opforge-tune-") as folder:
        path = Path(folder) / "draft.bin"
        bin_format.write(program, path)
        session = Session(path, threads=1)
        inputs = _inputs(session, shapes)
        session.run(inputs)
        for _ in range(RUNS):
            session.profile()
            session.run(inputs)
            for node in session.node_times():
                if node.op == "Conv" and node.output in keys:
                    key = keys[node.output]
                    best[key] = min(best.get(key, np.inf), node.nanoseconds * 1e-9)
    return best


def _inputs(session: Session, shapes: Shapes) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    made = {}
    for info in session.inputs:
        free = [d if isinstance(d, int) else OPEN_SIZE if k else OPEN_BATCH for k, d in enumerate(info.shape or ())]
        dims = list(shapes.get(info.name, free))
        real = np.issubdtype(info.dtype, np.floating)
        made[info.name] = (rng.standard_normal(dims) if real else np.zeros(dims)).astype(info.dtype)
    return made


def try_tune(lower: Lower, emit: Emit, shapes: Shapes) -> tuple[Choices, list[str], list[str]]:
    """`tune`, or a warning where the model cannot be run alone (a library is missing, sizes contradict)."""
    try:
        choices, lines = tune(lower, emit, shapes)
    except OpforgeError as error:
        return {}, [], [f"not tuned, since the model could not be run here: {str(error).splitlines()[0]}"]
    return choices, lines, []
