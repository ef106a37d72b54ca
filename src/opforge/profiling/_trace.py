"""Events as a trace for Perfetto or chrome://tracing, and as collapsed stacks for flame graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opforge.bin.session import EventKind
from opforge.profiling._rows import NodeRow, Profile

__all__ = ["chrome_trace", "collapsed_stacks", "stack_of"]

_MOST = 200_000
"""Events of a trace: browsers get slow with more. Whole runs are kept, the first ones."""


def chrome_trace(profile: Profile) -> dict[str, Any]:
    """Make a trace: a lane per thread, runs around their nodes, and what each node is as arguments.

    A profile without events (of another engine) gives one run of nodes one after the other, each with its median time.
    """
    rows = {row.node: row for row in profile.rows}
    events = profile.events
    made: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": f"{profile.engine} {profile.model}"}}
    ]
    if len(events) > _MOST:
        events = events[events["run"] <= int(events["run"][_MOST - 1]) - 1]
    if not len(events):
        return {"traceEvents": [*made, *_one_run(profile)], "displayTimeUnit": "ns"}
    start = int(events["begin"].min())
    for thread in sorted(set(events["thread"].tolist())):
        made.append({"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": f"thread {thread}"}})
    for event in events.tolist():
        kind, node, thread, run, begin, end = event
        row = rows.get(node)
        name, arguments = _describe(EventKind(kind), row)
        made.append(
            {
                "ph": "X", "pid": 1, "tid": thread, "ts": (begin - start) / 1e3, "dur": (end - begin) / 1e3,
                "name": name, "cat": EventKind(kind).name.lower(), "args": {"run": run, **arguments},
            }
        )  # fmt: skip
    return {"traceEvents": made, "displayTimeUnit": "ns"}


def _describe(kind: EventKind, row: NodeRow | None) -> tuple[str, dict[str, Any]]:
    if kind is EventKind.RUN:
        return "run", {}
    if kind is EventKind.COPIES:
        return "copies of outputs", {}
    if row is None:
        return "several nodes", {}
    if kind is EventKind.HELP:
        return f"help {row.operator}", {"node": row.name}
    return row.operator, arguments_of(row)


def arguments_of(row: NodeRow) -> dict[str, Any]:
    """What a trace says of a node."""
    made = {
        "node": row.name, "fused": row.group, "bytes": row.bytes, "flops": row.flops, "scope": ", ".join(row.scopes),
        "source": ", ".join(row.sources), "made_from": ", ".join(row.members),
    }  # fmt: skip
    return {key: value for key, value in made.items() if value not in (None, "")}


def _one_run(profile: Profile) -> Iterator[dict[str, Any]]:
    at = 0.0
    for row in profile.rows:
        time = row.p50_ns / 1e3
        yield {"ph": "X", "pid": 1, "tid": 0, "ts": at, "dur": time, "name": row.operator, "cat": "node",
               "args": arguments_of(row)}  # fmt: skip
        at += time


def stack_of(row: NodeRow) -> list[str]:
    """Where a node belongs: its module's path, its line, then itself."""
    scope = row.scopes[0] if row.scopes else ""
    frames = [part for part in scope.split(".") if part]
    frames += [row.sources[0]] if row.sources else []
    return [*frames, f"{row.operator.removeprefix('opforge::')} {row.name}"]


def collapsed_stacks(profile: Profile) -> str:
    """Write a line per node: frames joined by semicolons, and nanoseconds in a run.

    The format is that of FlameGraph, speedscope and inferno.
    """
    lines = []
    for row in profile.rows:
        frames = [profile.model.rpartition("/")[2], *stack_of(row)]
        lines.append(f"{';'.join(f.replace(';', ',') for f in frames)} {max(1, round(row.run_ns))}")
    return "\n".join(lines) + "\n"
