"""The log of a watched session: one JSON object a line, appended whole, so that processes may share a file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from opforge.errors import ArgumentError

__all__ = ["FORMAT", "Log", "append", "logs_of", "read_log"]

FORMAT = "opforge-monitor-1"
"""What every line says of itself."""


def append(path: Path, line: Mapping[str, Any]) -> None:
    """Append one line in one write.

    The file is opened anew each time: what rotates logs may move it away in between.
    """
    data = (json.dumps({"format": FORMAT, **line}, allow_nan=False) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


class Dimensions(Protocol):
    """What is asked of an input: ``opforge.engines.TensorInfo`` has it."""

    @property
    def name(self) -> str:
        """Of the input."""

    @property
    def kind(self) -> str:
        """A tensor, a sequence, or an optional of these."""

    @property
    def shape(self) -> Sequence[int | str | None]:
        """Numbers, names, None."""


@dataclass
class Log:
    """What one session of one process wrote.

    Attributes:
        model: the name under which it was watched.
        process: its number.
        path: the model's file.
        fingerprint: of the file.
        version: of opforge.
        threads: of a run; None = all.
        windows: its lines, each of a stretch of time.
    """

    model: str
    process: int
    path: str
    fingerprint: str
    version: str
    threads: int | None
    windows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """Runs that ended well."""
        return sum(window["runs"] for window in self.windows)

    def sizes(self, inputs: Sequence[Dimensions]) -> dict[str, int]:
        """Sizes of open dimensions in the commonest runs, for inputs that are drawn: a name, or ``input.axis``.

        Raises:
            ArgumentError: no shapes were noted, or they are not those of this model.
        """
        noted = self.shapes
        if not noted:
            raise ArgumentError("the log has no shapes", where=self.path, expected="a run at least")
        found: dict[str, int] = {}
        for info in inputs:
            got = noted[0][0].get(info.name)
            if got is None and info.kind != "tensor":
                continue
            fits = got is not None and len(got) == len(info.shape)
            if not fits or any(isinstance(d, int) and d != n for d, n in zip(info.shape, got or (), strict=True)):
                raise ArgumentError(
                    "the log is of another model", where=f"input {info.name}", expected=list(info.shape), got=got
                )
            for axis, (dim, size) in enumerate(zip(info.shape, got or (), strict=True)):
                if not isinstance(dim, int):
                    found[f"{info.name}.{axis}"] = size
        return found

    @property
    def shapes(self) -> list[tuple[dict[str, list[int]], int]]:
        """Shapes of inputs that were noted, and how often, the commonest first."""
        counts: Counter[str] = Counter()
        for window in self.windows:
            for entry in window["shapes"]:
                counts[json.dumps(entry["inputs"], sort_keys=True)] += entry["runs"]
        return [(json.loads(text), count) for text, count in counts.most_common()]


def read_log(paths: Sequence[str | os.PathLike[str]]) -> list[Log]:
    """Read logs; a log for each process and session, in order of their first line.

    The last line of a file may be cut off, as it is while somebody writes.

    Raises:
        ArgumentError: a file is missing or holds something else.
    """
    found: list[dict[str, Any]] = []
    for name in paths:
        path = Path(name)
        if not path.is_file():
            raise ArgumentError("there is no such log", where=str(path), expected="what opforge monitor writes")
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        parsed = (_line(path, number, text) for number, text in enumerate(lines[:-1], 1))
        found += [line for line in parsed if line is not None]
    return logs_of(found)


def logs_of(lines: Iterable[dict[str, Any]]) -> list[Log]:
    """Sort lines, as ``Monitor.roll`` returns them, by process and session."""
    found: dict[tuple[str, int, float], Log] = {}
    for line in lines:
        identity = Log(*(line[key] for key in _IDENTITY))
        found.setdefault((line["model"], line["process"], line["begun"]), identity).windows.append(line)
    return list(found.values())


_IDENTITY = ("model", "process", "path", "fingerprint", "version", "threads")
_NEEDED = (
    *_IDENTITY, "begun", "at", "seconds", "runs", "errors", "latency_ns", "arena_bytes", "resident_bytes", "shapes",
    "sampled_runs", "operators", "nodes",
)  # fmt: skip


def _line(path: Path, number: int, text: str) -> dict[str, Any] | None:
    """Parse a line; None for an empty one."""
    if not text.strip():
        return None
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict) or line.get("format") != FORMAT:
        raise ArgumentError(
            "a line of the log is not what opforge monitor writes",
            where=f"{path}, line {number}",
            expected=f'a JSON object with "format": "{FORMAT}"',
            got=text[:60],
        )
    missing = [key for key in _NEEDED if key not in line]
    if missing:
        raise ArgumentError("a line of the log lacks entries", where=f"{path}, line {number}", got=", ".join(missing))
    return line
