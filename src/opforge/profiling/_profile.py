"""``opforge.profile``: one model in one engine."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.bin.format import read
from opforge.bin.libraries import libraries_of
from opforge.bin.native import native
from opforge.bin.program import Program
from opforge.bin.session import Session
from opforge.engines import NodeTime
from opforge.errors import ArgumentError
from opforge.profiling._advice import advise
from opforge.profiling._flops import moves_of
from opforge.profiling._machine import machine as measured_machine
from opforge.profiling._model import ModelNodes
from opforge.profiling._rows import NodeRow, Profile
from opforge.profiling._runtime import measure, outside, rows_of
from opforge.verify import find_engine
from opforge.verify._inputs import model_path

if TYPE_CHECKING:
    import onnx

__all__ = ["profile"]

OWN = "opforge"


def profile(
    model: str | os.PathLike[str] | onnx.ModelProto,
    inputs: Mapping[str, Any],
    *,
    engine: str = OWN,
    runs: int | None = None,
    seconds: float | None = None,
    threads: int | None = None,
    roofs: bool = True,
    remeasure: bool = False,
) -> Profile:
    """Measure where the time of a model goes.

    Args:
        model: a .bin, an ONNX file or an ONNX model.
        inputs: an array for each input; every run gets the same.
        engine: "opforge", or another engine that says what its nodes take.
        runs: watched runs; None = by ``seconds``, for other engines than opforge 20.
        seconds: about how long to measure; None = a second, or less where 5000 runs take less.
        threads: of a run; None leaves the choice to the engine.
        roofs: hold nodes against what the machine can do; it is measured the first time, about a second.
        remeasure: measure the machine anew.

    Returns:
        A row per executed node, sums per operator, advice.

    Raises:
        ArgumentError: an input is missing or wrong, or the file is none that the engine takes.
        UnsupportedError: the engine does not measure nodes, or cannot run the model.
    """
    if runs is not None and runs < 1:
        raise ArgumentError("a profile needs runs", where="runs", expected=">= 1 or None", got=runs)
    source = model if not isinstance(model, os.PathLike) else Path(model)
    with model_path(source) as path:
        if engine == OWN:
            find_engine(OWN)
            result, program = _own(path, inputs, runs, seconds, threads)
        else:
            result, program = _other(path, inputs, engine, runs or 20, threads), None
    if roofs:
        result.machine = measured_machine(threads, remeasure=remeasure)
    result.advice = advise(result, program)
    return result


def _own(
    path: Path, inputs: Mapping[str, Any], runs: int | None, seconds: float | None, threads: int | None
) -> tuple[Profile, Program]:
    from opforge import __version__

    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
        target = path
        if path.suffix != ".bin":
            from opforge.bin.compiler import compile as compile_model

            target = Path(folder) / "model.bin"
            compile_model(path, target)
        program = read(target).program
        count = min(threads or native().thread_count(), native().thread_count())
        session = Session(target, threads=threads, libraries=libraries_of(target, search=True))
        measured = measure(session, inputs, runs=runs, seconds=seconds or 1.0, whole=seconds is not None)
        rows = rows_of(session, program, measured)
        if count > 1:
            rows = _with_speedup(rows, target, program, inputs, seconds)
    shapes = {name: list(np.shape(value)) for name, value in inputs.items() if value is not None}
    result = Profile(
        str(path), OWN, __version__, count, shapes, measured.watched_ns, measured.plain_ns, measured.every, rows
    )
    result.events, result.lost, result.outside = measured.events, measured.lost, outside(measured)
    return result, program


def _with_speedup(
    rows: list[NodeRow], target: Path, program: Program, inputs: Mapping[str, Any], seconds: float | None
) -> list[NodeRow]:
    """Run with one thread too, so that each node says what further threads bring."""
    alone = Session(target, threads=1, libraries=libraries_of(target, search=True))
    measured = measure(alone, inputs, seconds=(seconds or 1.0) / 3)
    single = {row.node: row for row in rows_of(alone, program, measured)}
    # Calls may differ: with several threads a node may take fewer images at a time. So times of runs are compared.
    found = []
    for row in rows:
        other = single.get(row.node)
        found.append(replace(row, speedup=other.run_ns / row.run_ns) if other is not None and row.run_ns else row)
    return found


def _other(path: Path, inputs: Mapping[str, Any], name: str, runs: int, threads: int | None) -> Profile:
    engine = find_engine(name)
    if path.suffix not in engine.traits().suffixes:
        raise ArgumentError(
            f"{name} does not take such a file", where=str(path), expected=", ".join(engine.traits().suffixes)
        )
    times = engine.profile(path, inputs, runs=runs, threads=threads)
    nodes = ModelNodes(path, inputs) if path.suffix == ".onnx" else None
    if nodes is not None:
        claims = nodes.completed([time.origin or nodes.named(time.name) for time in times])
        times = [replace(time, origin=claim) for time, claim in zip(times, claims, strict=True)]
    rows = [_row(time, nodes, runs) for time in times]
    shared = {key for key, count in Counter(row.members for row in rows).items() if count > 1}
    # Nodes that stand for the same nodes together: nobody knows whose part is what.
    rows = [replace(row, flops=None, bytes=None) if row.members in shared and row.members else row for row in rows]
    total = sum(row.run_ns for row in rows) or 1.0
    rows = [replace(row, share=row.run_ns / total) for row in rows]
    shapes = {key: list(np.shape(value)) for key, value in inputs.items() if value is not None}
    none = np.zeros(0, np.int64)
    return Profile(str(path), name, engine.availability().version, threads, shapes, none, none, 1, rows, runs=runs)


def _row(time: NodeTime, nodes: ModelNodes | None, runs: int) -> NodeRow:
    samples = np.array(time.samples or [time.nanoseconds // max(1, time.runs)] * time.runs, np.int64)
    members = time.origin
    places = [nodes.places[name] for name in members if name in nodes.places] if nodes is not None else []
    whole = len(samples) % runs == 0  # else calls cannot be told apart by run
    return NodeRow(
        time.name, time.operator, time.runs, samples,
        float(np.median(samples.reshape(runs, -1).sum(axis=1))) if whole else time.nanoseconds / runs,
        bytes=nodes.bytes(members) if nodes is not None and time.bytes is None else time.bytes,
        flops=nodes.flops(members) if nodes is not None else None,
        moves=time.moves or moves_of(time.operator), members=members,
        scopes=tuple(dict.fromkeys(p.scope for p in places if p.scope)),
        sources=tuple(dict.fromkeys(p.source for p in places if p.source)),
        device=time.device,
    )  # fmt: skip
