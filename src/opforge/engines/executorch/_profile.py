"""Times of nodes, from the events that ExecuTorch's tracer writes (an ETDump: its etdump_schema_flatcc.fbs)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from opforge.engines._protocol import NodeTime
from opforge.engines.executorch._flatbuffer import Table, root
from opforge.engines.executorch._session import Session
from opforge.engines.executorch._variants import OVERLOAD, entry_named
from opforge.errors import UnsupportedError

__all__ = ["profile"]

_KERNEL: Final = "native_call_"
_DELEGATE: Final = "DELEGATE_CALL"
# Fields by their number in the schema.
_DUMP_RUNS: Final = 1
_RUN_NAME, _RUN_EVENTS = 0, 3
_EVENT_PROFILE: Final = 0
_NAME, _INSTRUCTION, _START, _END = 0, 2, 6, 7


def profile(model: Path, inputs: Mapping[str, Any], runs: int, threads: int | None) -> list[NodeTime]:
    """Run a .pte with the tracer and sum each instruction's times over the runs after the first."""
    session = Session(model, threads=threads, trace=True)
    for _ in range(runs + 1):
        session.run(inputs)
    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
        path = Path(folder) / "trace.etdp"
        session.write_trace(path)
        data = path.read_bytes() if path.is_file() else b""
    if not data:
        raise UnsupportedError(
            "this ExecuTorch records no events", where=str(model), hint="install executorch from its wheels"
        )
    counted = [run for run in root(data[4:]).tables(_DUMP_RUNS) if run.text(_RUN_NAME) == "Execute"][-runs:]
    sums: dict[tuple[int, str], list[int]] = {}
    for run in counted:
        for name, instruction, nanoseconds in _kernels(run):
            sums.setdefault((instruction, name), []).append(nanoseconds)
    found = []
    for (instruction, name), times in sums.items():
        device = "delegate" if name == _DELEGATE else "cpu"
        operator = _operator(name, session.operators)
        found.append(
            NodeTime(f"instruction {instruction}", operator, device, len(times), sum(times), samples=tuple(times))
        )
    return found


def _kernels(run: Table) -> Iterator[tuple[str, int, int]]:
    for event in run.tables(_RUN_EVENTS):
        times = event.table(_EVENT_PROFILE)
        if times is not None and times.text(_NAME).startswith((_KERNEL, _DELEGATE)):
            spent = times.number(_END, "<Q") - times.number(_START, "<Q")
            yield times.text(_NAME).removeprefix(_KERNEL), times.number(_INSTRUCTION, "<i", -1), spent


def _operator(name: str, called: tuple[str, ...]) -> str:
    """Give ``domain::Name`` for one of ours, ``aten::name`` for one of PyTorch's."""
    full = next((one for one in called if one == name or one.endswith(f"::{name}")), name)
    plain, _, overload = full.rpartition(".")
    entry = entry_named(plain) if overload == OVERLOAD and "::" in plain else None
    return entry.where if entry is not None else plain or full
