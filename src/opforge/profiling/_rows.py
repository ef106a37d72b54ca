"""What a profile is: a row per executed node, sums per operator, and the figures that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opforge.profiling._machine import Machine

if TYPE_CHECKING:
    from opforge.profiling._advice import Advice

__all__ = ["NodeRow", "OperatorRow", "Profile", "summarise"]


@dataclass(frozen=True)
class NodeRow:
    """One executed node.

    Attributes:
        name: of its first output (opforge), or as the engine names it.
        operator: ``domain::Name``, or the plain name of a standard operator.
        calls: how often it ran while watched; a node in a loop, or one that takes a few images at a time, runs several
            times in each run of the model.
        samples: nanoseconds of each call; without the nodes inside, of an If or a Loop.
        run_ns: its time in a run of the model: all its calls in one run together, the median over the runs, so that a
            run which something else interrupted does not count.
        share: its part of that of all nodes.
        bytes: what a call reads and writes: inputs, outputs and weights, each once. None where it is not known.
        flops: what a call computes by the operator's definition (two per multiply-add, one for any other function of a
            number), whatever the algorithm. None where it is not known.
        moves: "copy", "layout", or "" for a node that computes.
        members: nodes of the model that it stands for.
        scopes: modules that these come from.
        sources: lines of the model's code that these come from.
        helped: part of its time that the other threads worked too, between 0 and 1; None with one thread.
        speedup: time with one thread over the time here; None where it was not measured.
        group: what the compiler fused into it, e.g. ``MatMul + Gelu``.
    """

    name: str
    operator: str
    calls: int
    samples: NDArray[np.int64] = field(repr=False)
    run_ns: float
    share: float = 0.0
    bytes: int | None = None
    flops: int | None = None
    moves: str = ""
    members: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    helped: float | None = None
    speedup: float | None = None
    group: str = ""
    node: int = -1
    device: str = "cpu"

    @property
    def mean_ns(self) -> float:
        """Mean time of a call."""
        return float(self.samples.mean()) if len(self.samples) else 0.0

    @cached_property
    def p50_ns(self) -> float:
        """Median time of a call."""
        return float(np.median(self.samples)) if len(self.samples) else 0.0

    @cached_property
    def p99_ns(self) -> float:
        """99th percentile of the time of a call."""
        return float(np.percentile(self.samples, 99)) if len(self.samples) else 0.0

    @property
    def gbytes_per_s(self) -> float | None:
        """Bytes a second, by the median time."""
        return None if self.bytes is None or not self.p50_ns else self.bytes / self.p50_ns

    @property
    def gflops_per_s(self) -> float | None:
        """Operations a second, by the median time."""
        return None if self.flops is None or not self.p50_ns else self.flops / self.p50_ns

    @property
    def intensity(self) -> float | None:
        """Operations per byte."""
        return None if self.flops is None or not self.bytes else self.flops / self.bytes

    def of_roof(self, machine: Machine | None) -> float | None:
        """What it reaches of what the machine could at this intensity; None where bytes or flops are unknown."""
        if machine is None or self.bytes is None or not self.p50_ns:
            return None
        least = max(self.bytes / machine.bytes_per_s(self.bytes), (self.flops or 0) / machine.flops_per_s)
        return least * 1e9 / self.p50_ns

    def as_dict(self, machine: Machine | None = None) -> dict[str, Any]:
        """Give plain data, times in nanoseconds."""
        return {
            "name": self.name, "operator": self.operator, "node": self.node, "device": self.device,
            "calls": self.calls, "mean_ns": self.mean_ns, "p50_ns": self.p50_ns, "p99_ns": self.p99_ns,
            "run_ns": self.run_ns, "share": self.share, "bytes": self.bytes, "flops": self.flops,
            "gbytes_per_s": self.gbytes_per_s, "gflops_per_s": self.gflops_per_s, "intensity": self.intensity,
            "of_roof": self.of_roof(machine), "moves": self.moves, "fused": self.group, "helped": self.helped,
            "speedup": self.speedup, "members": list(self.members), "scopes": list(self.scopes),
            "sources": list(self.sources),
        }  # fmt: skip


@dataclass(frozen=True)
class OperatorRow:
    """All nodes of one operator; bytes and flops of a call of each, None where one node's is unknown."""

    operator: str
    nodes: int
    calls: int
    run_ns: float
    share: float
    bytes: int | None
    flops: int | None
    moves: str


@dataclass
class Profile:
    """Where the time of a model goes in one engine.

    Attributes:
        model: the file.
        engine: its name.
        version: of the engine.
        threads: of a run; None = the engine's choice.
        shapes: of the inputs.
        run_ns: wall times of runs that were watched, as the caller sees them.
        plain_ns: wall times of runs that nobody watched, in turn with these; empty where the engine cannot.
        every: one run in so many was watched.
        rows: a row per executed node, in order of execution.
        machine: what the machine can do; None where it was not measured.
        advice: what stands out.
        events: of the runtime (``opforge.bin.session.EVENT``), for traces; empty for other engines.
        lost: events that were not kept.
        runs: watched runs that the times of the nodes are of.
        outside: part of a call that lies outside of the nodes, the median; None where it is not known.
    """

    model: str
    engine: str
    version: str
    threads: int | None
    shapes: dict[str, list[int]]
    run_ns: NDArray[np.int64]
    plain_ns: NDArray[np.int64]
    every: int
    rows: list[NodeRow]
    machine: Machine | None = None
    advice: list[Advice] = field(default_factory=list)
    events: NDArray[Any] = field(default_factory=lambda: np.zeros(0), repr=False)
    lost: int = 0
    runs: int = 0
    outside: float | None = None

    def __post_init__(self) -> None:
        """Count the watched runs."""
        self.runs = self.runs or len(self.run_ns)

    @property
    def nodes_ns(self) -> float:
        """Time of all nodes in a run."""
        return sum(row.run_ns for row in self.rows)

    @property
    def overhead(self) -> float | None:
        """How much longer a watched run takes, as a part; with ``every``, on average over all runs."""
        if not len(self.run_ns) or not len(self.plain_ns):
            return None
        return float(np.median(self.run_ns) / np.median(self.plain_ns) - 1) / self.every

    @property
    def operators(self) -> list[OperatorRow]:
        """Sums per operator, the dearest first."""
        return summarise(self.rows)

    def share_of(self, moves: str) -> float:
        """Part of the time in nodes that only move data ("copy") or change a layout ("layout")."""
        return sum(row.share for row in self.rows if row.moves == moves)

    def as_dict(self) -> dict[str, Any]:
        """Give plain data, without the events."""
        return {
            "model": self.model, "engine": self.engine, "version": self.version, "threads": self.threads,
            "inputs": self.shapes,
            "run_ns": _spread(self.run_ns), "unwatched_run_ns": _spread(self.plain_ns), "overhead": self.overhead,
            "runs": self.runs, "outside": self.outside, "watched_every": self.every, "lost_events": self.lost,
            "copy_share": self.share_of("copy"), "layout_share": self.share_of("layout"),
            "machine": None if self.machine is None else self.machine.as_dict(),
            "operators": [asdict(row) for row in self.operators],
            "nodes": [row.as_dict(self.machine) for row in self.rows],
            "advice": [asdict(item) for item in self.advice],
        }  # fmt: skip


def _spread(times: NDArray[np.int64]) -> dict[str, float] | None:
    if not len(times):
        return None
    return {
        "runs": len(times),
        "mean": float(times.mean()),
        "p50": float(np.median(times)),
        "p99": float(np.percentile(times, 99)),
    }


def summarise(rows: Sequence[NodeRow]) -> list[OperatorRow]:
    """Add up the nodes of each operator, the dearest first."""
    groups: dict[str, list[NodeRow]] = {}
    for row in rows:
        groups.setdefault(row.operator, []).append(row)
    found = [
        OperatorRow(
            operator,
            len(group),
            sum(row.calls for row in group),
            sum(row.run_ns for row in group),
            sum(row.share for row in group),
            _sum([row.bytes for row in group]),
            _sum([row.flops for row in group]),
            group[0].moves,
        )
        for operator, group in groups.items()
    ]
    return sorted(found, key=lambda row: -row.run_ns)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
