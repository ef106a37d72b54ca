"""A profile of opforge's own runtime: every call of every node, in turn with runs that nobody watches."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opforge.bin.program import Node, Program
from opforge.bin.session import EventKind, Session
from opforge.profiling._flops import bytes_of, flops_of, moves_of
from opforge.profiling._rows import NodeRow

__all__ = ["Measured", "NodeCalls", "NodeKind", "calls_of", "measure", "outside", "rows_of"]

_BLOCKS = 6
_MOST_EVENTS = 4_000_000
_MOST_RUNS = 5000
_LIMIT = 0.02
"""Part of a run that watching may take; else one run in so many is watched that it is less on average."""
_MOST_EVERY = 64
_CONTROL = frozenset({"If", "Loop"})


@dataclass
class Measured:
    """Events and wall times of a session.

    Attributes:
        events: of all watched runs, run numbers counted through; dtype ``EVENT``.
        watched_ns: wall times of watched runs.
        plain_ns: of runs that were not.
        every: one run in so many was watched.
        lost: events that were not kept.
    """

    events: NDArray[Any]
    watched_ns: NDArray[np.int64]
    plain_ns: NDArray[np.int64]
    every: int
    lost: int


def measure(
    session: Session,
    inputs: Mapping[str, Any],
    *,
    runs: int | None = None,
    seconds: float = 1.0,
    whole: bool = False,
) -> Measured:
    """Run in blocks, watched and not, in turn.

    Args:
        session: warm or not: two runs go ahead.
        inputs: of each run.
        runs: watched ones; None = as many as take half of ``seconds``, at least 20, at most 5000.
        seconds: see ``runs``.
        whole: whether to go on for the seconds where 5000 runs take less, with runs in between that nobody watches.
    """
    given = dict(inputs)
    once = int(max(_times(session, given, 2).min(), 1))  # the less of two: others on the machine only add
    wanted = runs if runs is not None else max(20, round(seconds * 5e8 / once))
    count = max(1, wanted if runs is not None else min(_MOST_RUNS, wanted))
    apart = wanted // count if whole else 1
    block = math.ceil(count / _BLOCKS)
    nodes = max(1, int(session.statistics["executed_nodes"]))
    every = max(apart, _every(session, given, min(block, max(20, round(5e7 / once)))))
    events, watched, plain, lost, first = [], [], [], 0, 0
    for _ in range(math.ceil(count / block)):
        plain.append(_times(session, given, block, apart))
        session.profile_events(min(_MOST_EVENTS // _BLOCKS, block * (nodes + 3) * 8 + 4096), every=every)
        times = _times(session, given, block, every)
        session.profile(on=False)
        found, missing = session.events()
        found = found.copy()
        found["run"] += first
        first = int(found["run"].max(initial=first - 1)) + 1
        events.append(found)
        lost += missing
        watched.append(times)
    return Measured(np.concatenate(events), np.concatenate(watched), np.concatenate(plain), every, lost)


def _times(session: Session, inputs: dict[str, Any], count: int, every: int = 1) -> NDArray[np.int64]:
    """Give the times of so many runs, the first of each ``every``."""
    times = np.empty(count, np.int64)
    clock, run = time.perf_counter_ns, session.run
    for k in range(count):
        started = clock()
        run(inputs)
        times[k] = clock() - started
        for _ in range(every - 1):
            run(inputs)
    return times


def _every(session: Session, inputs: dict[str, Any], block: int) -> int:
    """Choose how many runs go by for one that is watched: 1 unless watching costs more than its part of a run."""
    plain, watched = [], []
    for _ in range(5):
        plain.append(np.median(_times(session, inputs, block)))
        session.profile_events(0)
        watched.append(np.median(_times(session, inputs, block)))
        session.profile(on=False)
    cost = float(min(watched) / min(plain)) - 1  # the least of each: others on the machine only add
    return 1 if cost <= _LIMIT else min(_MOST_EVERY, math.ceil(cost / _LIMIT))


def outside(measured: Measured) -> float | None:
    """Part of a call, as the caller sees it, in which no node ran: the median over the runs."""
    whole = measured.events[measured.events["kind"] == EventKind.RUN]
    inside = np.bincount(whole["run"], weights=whole["end"] - whole["begin"]) if len(whole) else np.zeros(0)
    if len(inside) != len(measured.watched_ns) or not len(inside):  # of programs that run node by node, or lost events
        return None
    return float(np.median((measured.watched_ns - inside) / measured.watched_ns))


@dataclass(frozen=True)
class NodeCalls:
    """The calls of one node in watched runs.

    Attributes:
        node: its number in the program.
        samples: nanoseconds of each; of an If or a Loop without the nodes that ran inside.
        run_ns: its time in a run, all its calls together: the median over the runs in which it ran.
        first: when it began first.
    """

    node: int
    samples: NDArray[np.int64]
    run_ns: float
    first: int


class NodeKind(Protocol):
    """What tells an If or a Loop: a node of a program, or of a session's times."""

    @property
    def domain(self) -> str:
        """The operator's domain."""

    @property
    def op(self) -> str:
        """The operator's name."""


def calls_of(events: NDArray[Any], nodes: Sequence[NodeKind]) -> list[NodeCalls]:
    """Sort events by node, in order of its first call.

    Args:
        events: of a session, dtype ``EVENT``.
        nodes: all nodes of its program.
    """
    calls = _calls(events)
    if not len(calls):
        return []
    own = _without_inner(calls, nodes)
    order = np.argsort(calls["node"], kind="stable")
    numbers, starts = np.unique(calls["node"][order], return_index=True)
    found = []
    for number, chosen in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        _, runs = np.unique(calls["run"][chosen], return_inverse=True)
        sums = np.bincount(runs, weights=own[chosen])
        typical = float(np.median(sums[sums > 0])) if (sums > 0).any() else 0.0
        found.append(NodeCalls(number, own[chosen], typical, int(calls["begin"][chosen].min())))
    return sorted(found, key=lambda one: one.first)


def _calls(events: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = events[(events["kind"] == EventKind.NODE) | (events["kind"] == EventKind.AGAIN)]
    return found


def rows_of(session: Session, program: Program, measured: Measured) -> list[NodeRow]:
    """Make the row of each node that ran, in order of its first call."""
    nodes = [node for graph in program.graphs for node in graph.nodes]
    helped = _helped(measured.events, _calls(measured.events))
    rows = [
        _row(session, program, nodes[one.node], one.node, one.samples, one.run_ns, helped.get(one.node))
        for one in calls_of(measured.events, nodes)
    ]
    total = sum(row.run_ns for row in rows) or 1.0
    return [replace(row, share=row.run_ns / total) for row in rows]


def _row(
    session: Session,
    program: Program,
    node: Node,
    number: int,
    samples: NDArray[np.int64],
    typical: float,
    helped: float | None,
) -> NodeRow:
    operator = f"{node.domain}::{node.op}" if node.domain else node.op
    tensors = session.node_tensors(number)
    inputs, outputs = tensors[: len(node.inputs)], tensors[len(node.inputs) :]
    size, flops = None, None
    if tensors and not (node.op in _CONTROL and not node.domain):
        sizes = [_bytes(program, v, t.bytes) for v, t in zip((*node.inputs, *node.outputs), tensors, strict=True)]
        size = bytes_of(node.op, sizes[: len(inputs)], sizes[len(inputs) :])
        flops = flops_of(node.domain, node.op, [t.shape for t in inputs], [t.shape for t in outputs], node.attributes)
    places = [program.places[name] for name in node.origin if name in program.places]
    name = next((program.values[v].name for v in node.outputs if v >= 0), f"node {number}")
    return NodeRow(
        name, operator, len(samples), samples, typical,
        bytes=size, flops=flops, moves=moves_of(operator), members=tuple(node.origin),
        scopes=tuple(dict.fromkeys(p.scope for p in places if p.scope)),
        sources=tuple(dict.fromkeys(p.source for p in places if p.source)),
        helped=helped, group=_group(node), node=number,
    )  # fmt: skip


def _bytes(program: Program, value: int, size: int) -> int:
    """Bytes of a tensor; of packed weights as they lie in the file."""
    data = program.values[value].data if value >= 0 else None
    return size if data is None else int(data.nbytes)


def _group(node: Node) -> str:
    """Say what is fused into a node of the compiler."""
    parts = [node.op]
    if node.domain == "opforge":
        parts += [str(node.attributes["activation"])] if node.attributes.get("activation") else []
        residual = node.op == "Conv" and len(node.inputs) > 3 and node.inputs[3] >= 0
        parts += ["residual"] if residual and "channels_total" not in node.attributes else []
        parts += ["epilogue"] if "epilogue" in node.attributes else []
    return " + ".join(parts) if len(parts) > 1 else ""


def _without_inner(calls: NDArray[Any], nodes: Sequence[NodeKind]) -> NDArray[np.int64]:
    """Durations; those of an If or a Loop without the nodes that ran inside."""
    times: NDArray[np.int64] = calls["end"] - calls["begin"]
    holders = {k for k, node in enumerate(nodes) if node.op in _CONTROL and not node.domain}
    if not holders:
        return times
    order = np.lexsort((-calls["end"], calls["begin"], calls["thread"]))
    columns = (calls[name][order].tolist() for name in ("thread", "node", "begin", "end"))
    stack: list[tuple[int, int, int]] = []  # place, thread and end of those around
    for place, thread, node, begin, end in zip(order.tolist(), *columns, strict=True):
        while stack and not (stack[-1][1] == thread and stack[-1][2] >= end):
            stack.pop()
        if stack:
            times[stack[-1][0]] -= end - begin
        if node in holders:
            stack.append((place, thread, end))
    return times


def _helped(events: NDArray[Any], calls: NDArray[Any]) -> dict[int, float]:
    """Part of each node's time that workers helped in; nothing where none did."""
    help_ = events[(events["kind"] == EventKind.HELP) & (events["node"] >= 0)]
    if not len(help_):
        return {}
    threads = len(np.unique(help_["thread"]))
    found = {}
    for number in np.unique(help_["node"]):
        busy = int((help_["end"] - help_["begin"])[help_["node"] == number].sum())
        mine = calls["node"] == number
        wall = int((calls["end"] - calls["begin"])[mine].sum())
        found[int(number)] = min(1.0, busy / (wall * threads)) if wall else 0.0
    return found
