"""What failed, told in few characters: of a log that is long, often only the end is seen by whoever reads it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["LIMIT", "MARK", "of_log", "of_reports"]

LIMIT = 1800
"""Characters that are told."""
MARK = "what failed:"
"""Begins what `of_reports` tells: the end of a log that has it needs no choice of lines."""
WIDTH = 240
"""Characters of a line that are kept."""

# A sign of failure at the beginning of a line or, for compilers and sanitizers, within it; how many lines of it.
_SIGNS = (
    (re.compile(r"(FAILED|ERROR)\b|.*: FAILED|E {3,}\S"), 12),
    (re.compile(r".*(?:\b(?:fatal )?error: |runtime error: |ERROR: |WARNING: ThreadSanitizer|SUMMARY: )"), 8),
    (re.compile(r"\w*(?:Error|Exception|Interrupt)\b(?::|$)|Traceback \(most recent"), 4),
    (re.compile(r"\s*#\d+ (?!0x\w+ *$)"), 6),
    (re.compile(r"make: \*\*\* "), 2),
)


def of_log(text: str, limit: int = LIMIT) -> str:
    """Return the lines of a log that say what failed, in their order, and its end.

    Args:
        text: the log of one program that failed.
        limit: characters of the result.
    """
    text = text.rstrip()
    if MARK in text:
        return _end(text[text.rindex(MARK) :], limit)
    lines = [line[:WIDTH].rstrip() for line in text.splitlines()]
    last = _end("\n".join(line for line in lines[-12:] if line), limit // 3)
    found = _join(_signs(lines[: max(0, len(lines) - last.count("\n") - 1)]), limit - len(last) - 5)
    return f"{found}\n...\n{last}" if found else _end("\n".join(lines), limit)


def of_reports(reports: Iterable[Path], limit: int = LIMIT) -> str:
    """Return the failures that JUnit reports name: each test, its message, and the line; "" where there is none.

    The first failures are told at length, the others by their names.
    """
    failures = [row for path in reports if path.exists() for row in _failures(path)]
    if not failures:
        return ""
    names = [f"FAILED {name}" for name, _ in failures]
    room = limit - len(MARK) - 12 - sum(min(len(name), WIDTH) + 1 for name in names[:6])
    share = max(120, room // min(3, len(failures)))
    rows = [
        f"{name[:WIDTH]}\n{_shorten(detail, share)}" if k < 3 else name[:WIDTH]
        for k, (name, (_, detail)) in enumerate(zip(names, failures, strict=True))
    ]
    return _join([MARK, *rows], limit)


def _signs(lines: list[str]) -> Iterator[str]:
    left = [count for _, count in _SIGNS]
    before = ""
    for line in lines:
        kind = next((k for k, (sign, _) in enumerate(_SIGNS) if sign.match(line)), None)
        if kind is not None and left[kind] > 0 and line != before:
            left[kind] -= 1
            before = line
            yield line


def _failures(path: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(path).iter("testcase"):
        for bad in (*case.findall("failure"), *case.findall("error")):
            place, name = case.get("classname", ""), case.get("name", "")
            text, message = (bad.text or "").strip(), bad.get("message", "").strip()
            if not place or place == name:  # a C++ test: all that it printed
                yield name, (case.findtext("system-out") or message).strip()
                continue
            file = case.get("file") or place.replace(".", "/") + ".py"
            where = text.splitlines()[-1:] if message and message not in text.splitlines()[-1:] else []
            yield f"{file}::{name}", "\n".join([message or text[-600:], *where])


def _shorten(text: str, limit: int) -> str:
    """Keep the beginning, which says what was wrong, and the end, which says where."""
    text = "\n".join(f"  {line[:WIDTH].rstrip()}" for line in text.splitlines() if line.strip())
    return text if len(text) <= limit else f"{text[: limit * 2 // 3]} ... {text[len(text) - limit // 3 + 5 :]}"


def _join(rows: Iterable[str], limit: int) -> str:
    kept: list[str] = []
    for count, row in enumerate(rows):
        if sum(len(one) + 1 for one in kept) + len(row) > limit - 20:
            return "\n".join([*kept, "and more"]) if count else row[:limit]
        kept.append(row)
    return "\n".join(kept)


def _end(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"...{text[3 - limit :]}"
