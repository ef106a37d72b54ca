"""Words and tones that sections share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opforge.report._model import Cell, Check

__all__ = ["counted", "first_line", "heat", "left_out", "mark", "megabytes", "number", "shape_text", "subject_name"]


def counted(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {noun if count == 1 else noun + 's'}"


def number(value: Any) -> float:  # noqa: ANN401 - JSON
    """Return a figure; JSON of ours writes what is not finite as text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def first_line(text: str, most: int = 200) -> str:
    """Return the first line, cut where it is long."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= most else line[: most - 1] + "…"


def mark(passed: bool | None) -> Cell:
    """A verdict as a cell."""
    words = {True: ("passed", "good", 2.0), False: ("FAILED", "bad", 0.0), None: ("not clear", "warn", 1.0)}
    text, tone, order = words[passed]
    return Cell(text, tone, order)


def heat(share: float, text: str) -> Cell:
    """Colour an error by its share of what is allowed: 0 is none, 1 the limit, above it is wrong."""
    if math.isnan(share):
        return Cell(text, "quiet")
    steps = (0.01, 0.1, 0.3, 0.6, 1.0)
    return Cell(text, f"heat{sum(share > step for step in steps)}", share if math.isfinite(share) else 1e300)


def megabytes(size: float) -> str:
    """Write bytes for people."""
    return f"{size / (1 << 20):.2f} MiB" if size >= 1 << 17 else f"{size / 1024:.1f} KiB"


def left_out(skipped: Mapping[str, str]) -> list[Check]:
    """Turn what a command left out into checks that say so."""
    return [Check(name, "left out", first_line(reason, 400)) for name, reason in skipped.items()]


def subject_name(subject: str) -> str:
    """Return the file's name of a model, and an operator's name as it is."""
    return Path(subject).name if subject.endswith((".onnx", ".bin")) else subject


def shape_text(shape: Sequence[object] | None) -> str:
    """Write a shape as signatures do: ``[N, 3]``, ``?`` for what is not known."""
    return "?" if shape is None else "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
