"""Profiles of several engines side by side: nodes that stand for the same nodes of the model in one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opforge.profiling._rows import NodeRow, Profile

__all__ = ["Group", "side_by_side"]


@dataclass(frozen=True)
class Group:
    """Nodes of the model that at least one engine runs together.

    Attributes:
        members: their names; empty for what an engine runs and the model does not have (conversions, copies), or does
            not say what it stands for.
        nodes: per engine, its nodes for these, as operator names.
        times: per engine, nanoseconds of a run in them; 0 where the engine has nothing left to run for them.
    """

    members: tuple[str, ...]
    nodes: Mapping[str, tuple[str, ...]]
    times: Mapping[str, float]


def side_by_side(profiles: Sequence[Profile]) -> list[Group]:
    """Match the nodes of engines through the nodes of the model that they stand for, the dearest group first.

    Two nodes that share a node of the model belong to one group, so that a fused node of one engine stands beside
    the several nodes of another.
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for profile in profiles:
        for row in profile.rows:
            for name in row.members[1:]:
                parent[root(name)] = root(row.members[0])
    groups: dict[str, list[tuple[str, NodeRow, float]]] = {}
    for profile in profiles:
        for row in profile.rows:
            key = root(row.members[0]) if row.members else ""
            groups.setdefault(key, []).append((profile.engine, row, row.run_ns))
    engines = [profile.engine for profile in profiles]
    found = [_group(engines, rows) for rows in groups.values()]
    return sorted(found, key=lambda group: -max(group.times.values()))


def _group(engines: Sequence[str], rows: Sequence[tuple[str, NodeRow, float]]) -> Group:
    members = dict.fromkeys(name for _, row, _ in rows for name in row.members)
    nodes = {name: tuple(row.group or row.operator for engine, row, _ in rows if engine == name) for name in engines}
    times = {name: sum(time for engine, _, time in rows if engine == name) for name in engines}
    return Group(tuple(members), nodes, times)
