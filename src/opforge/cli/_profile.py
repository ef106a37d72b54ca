"""Profiles as people read them: tables, and the rows of a .csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from opforge.cli._output import count_text, table

if TYPE_CHECKING:
    from opforge.profiling import Group, Machine, NodeRow, Profile

__all__ = ["csv_text", "print_profile", "print_side_by_side"]

_NAME, _ORIGIN = 24, 30
_MOST_BESIDE = 3
"""Engines whose figures stand in columns of their own."""


def print_profile(profile: Profile, top: int) -> None:
    """Print a profile: the run, operators, the dearest nodes, advice."""
    shapes = ", ".join(f"{name} {shape}" for name, shape in profile.shapes.items())
    threads = "" if profile.threads is None else f", {count_text(profile.threads, 'thread')}"
    click.echo(f"{profile.model} in {profile.engine} {profile.version}{threads}: {shapes}")
    _print_run(profile)
    click.echo()
    rows = [
        (o.operator, o.nodes, o.calls, f"{o.run_ns / 1e3:.1f}", f"{o.share:.1%}", _mega(o.bytes),
         _mega(o.flops), o.moves)
        for o in profile.operators[:top]
    ]  # fmt: skip
    table(None, ("operator", "nodes", "calls", "us / run", "share", "MB / call", "Mflop / call", "only"), rows)
    click.echo()
    machine = profile.machine
    dearest = sorted(profile.rows, key=lambda row: -row.run_ns)[:top]
    heads = ("node", "operator", "calls", "mean us", "p50", "p99", "share", "MB", "Mflop", "GB/s", "GFLOP/s",
             "of roof", "threads", "from")  # fmt: skip
    table(None, heads, [_node(row, machine) for row in dearest])
    if len(profile.rows) > top:
        rest = 1 - sum(row.share for row in dearest)
        click.echo(f"and {count_text(len(profile.rows) - top, 'node')} more, {rest:.1%} of the time")
    if profile.advice:
        click.echo()
    for rule in dict.fromkeys(item.rule for item in profile.advice):
        first, *others = (item for item in profile.advice if item.rule == rule)
        click.echo(f"{rule}: {first.where + ': ' if first.where else ''}{first.text}")
        also = [item.where for item in others]
        if also:
            more = f" and {len(also) - 3} more" if len(also) > 3 else ""
            click.echo(f"  also {', '.join(also[:3])}{more}")
        limit = _figure(first.threshold, "").strip()
        click.echo(f"  {_figure(first.figure, first.unit)} (the rule looks from {limit} on); {first.hint}")


def _figure(value: float, unit: str) -> str:
    return f"{value:.2g} {unit}"


def _print_run(profile: Profile) -> None:
    if len(profile.run_ns):
        p50, p99 = (float(np.percentile(profile.run_ns, q)) / 1e3 for q in (50, 99))
        text = f"{count_text(profile.runs, 'run')}: p50 {p50:.1f} us, p99 {p99:.1f} us"
        if profile.overhead is not None:
            plain = float(np.median(profile.plain_ns)) / 1e3
            text += f"; unwatched p50 {plain:.1f} us, so that watching costs {profile.overhead:+.1%}"
        if profile.every > 1:
            text += f" (one run in {profile.every} is watched)"
        click.echo(text)
    if profile.lost:
        click.echo(f"{profile.lost} events were not kept: fewer --runs keep all")
    copies, layouts = profile.share_of("copy"), profile.share_of("layout")
    click.echo(f"nodes {profile.nodes_ns / 1e3:.1f} us a run; copies {copies:.1%}, layout conversions {layouts:.1%}")
    if profile.machine is not None:
        m = profile.machine
        click.echo(
            f"machine ({count_text(m.threads, 'thread')}): {m.flops_per_s / 1e9:.0f} GFLOP/s, memory "
            f"{m.memory_bytes_per_s / 1e9:.1f} GB/s, in cache up to {max(v for _, v in m.copies) / 1e9:.0f} GB/s"
        )


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _mega(value: int | None) -> str:
    return "" if value is None else f"{value / 1e6:.3g}"


def _node(row: NodeRow, machine: Machine | None) -> tuple[str, ...]:
    part = row.of_roof(machine)
    threads = "" if row.speedup is None else f"{row.speedup:.2f}x"
    places = [*row.sources, *row.scopes] or list(row.members)
    return (
        _short(row.name, _NAME), row.group or row.operator, str(row.calls),
        *(f"{value / 1e3:.3g}" for value in (row.mean_ns, row.p50_ns, row.p99_ns)),
        f"{row.share:.1%}", _mega(row.bytes), _mega(row.flops),
        "" if row.gbytes_per_s is None else f"{row.gbytes_per_s:.1f}",
        "" if not row.gflops_per_s else f"{row.gflops_per_s:.1f}",
        "" if part is None else f"{part:.0%}", threads, _short(places[0] if places else "", _ORIGIN),
    )  # fmt: skip


def print_side_by_side(profiles: Sequence[Profile], top: int) -> None:
    """Print what engines take for the same nodes of the model."""
    from opforge.profiling import side_by_side

    groups = side_by_side(profiles)
    first = profiles[0].engine
    if len(profiles) > _MOST_BESIDE:
        _print_below(profiles, groups[:top])
        return
    rows = []
    for group in groups[:top]:
        cells = [f"{group.times[p.engine] / 1e3:.1f}" for p in profiles]
        ran = [", ".join(dict.fromkeys(group.nodes[p.engine])) or "-" for p in profiles]
        base = group.times[first]
        ratios = [f"{group.times[p.engine] / base:.2f}" if base else "" for p in profiles[1:]]
        rows.append((_named(group), *cells, *ratios, *(_short(text, 30) for text in ran)))
    total = [p.nodes_ns / 1e3 for p in profiles]
    ratios = [f"{value / total[0]:.2f}" if total[0] else "" for value in total[1:]]
    rows.append(("all nodes", *(f"{value:.1f}" for value in total), *ratios, *("" for _ in profiles)))
    names = [p.engine for p in profiles]
    click.echo()
    heads = ("nodes of the model", *(f"{n} us" for n in names), *(f"{n} / {first}" for n in names[1:]), *names)
    table("side by side", heads, rows)


def _named(group: Group) -> str:
    name = group.members[-1] if group.members else "(not of the model)"
    more = f" and {len(group.members) - 1} more" if len(group.members) > 1 else ""
    return _short(name, _NAME) + more


def _print_below(profiles: Sequence[Profile], groups: Sequence[Group]) -> None:
    """Print a row per node and engine: columns of so many engines would be too narrow to be read."""
    first = profiles[0].engine
    rows = []
    for group in groups:
        base = group.times[first]
        for index, engine in enumerate(p.engine for p in profiles):
            ratio = f"{group.times[engine] / base:.2f}" if base else ""
            ran = ", ".join(dict.fromkeys(group.nodes[engine])) or "-"
            name = "" if index else _named(group)
            rows.append((name, engine, f"{group.times[engine] / 1e3:.1f}", ratio, _short(ran, _NAME)))
    base = profiles[0].nodes_ns
    for index, profile in enumerate(profiles):
        ratio = f"{profile.nodes_ns / base:.2f}" if base else ""
        rows.append(("" if index else "all nodes", profile.engine, f"{profile.nodes_ns / 1e3:.1f}", ratio, ""))
    click.echo()
    table("side by side", ("nodes of the model", "engine", "us", f"/ {first}", "its nodes"), rows)


def csv_text(profile: Profile) -> str:
    """Write a row per node, with a head; lists are joined by blanks."""
    stream = io.StringIO()
    rows = [row.as_dict(profile.machine) for row in profile.rows]
    writer = csv.DictWriter(stream, list(rows[0]) if rows else ["name"])
    writer.writeheader()
    for row in rows:
        writer.writerow({key: " ".join(map(str, v)) if isinstance(v, list) else v for key, v in row.items()})
    return stream.getvalue()
