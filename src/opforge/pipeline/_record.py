"""What a pipeline did, kept beside its files, so that a later run can tell what is still true."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import opforge
from opforge._files import whole_file
from opforge.pipeline._steps import Settings

__all__ = ["RECORD", "file_hash", "fingerprint", "read_record", "sources", "steps_of", "write_record"]

RECORD = "pipeline.json"
"""Name of the file in the pipeline's folder."""
_FORM = 1


def read_record(folder: Path) -> dict[str, Any]:
    """Return what the last run wrote; {} where there is nothing that can be read."""
    try:
        content: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if content.get("pipeline") == _FORM and all(row["step"] for row in content["steps"]):
            return content
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # a run that writes it anew is the remedy for every way of being unreadable
    return {}


def steps_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the steps of a record by name."""
    return {row["step"]: row for row in content.get("steps", ())}


def write_record(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the record, whole or not at all."""
    with whole_file(folder / RECORD) as temporary:
        temporary.write_text(json.dumps({"pipeline": _FORM, **content}, indent=1) + "\n", encoding="utf-8")


def sources(settings: Settings) -> list[Path]:
    """Return the files that the source and the packages consist of, as far as their places tell.

    Of a module it is what lies beside it: it may import its neighbours, and read weights.
    """
    where = settings.source if settings.ready else settings.source.rpartition(":")[0] or settings.source
    found: set[Path] = set()
    for index, place in enumerate([where, *settings.packages]):
        path = Path(place)
        if path.is_dir():
            found.update(path.rglob("*"))
        elif path.is_file():
            found.update(path.parent.iterdir() if path.suffix == ".py" and not index else [path])
    own = settings.folder.absolute()
    kept = (p for p in found if p.is_file() and own not in p.absolute().parents and "__pycache__" not in p.parts)
    return sorted(kept)


def fingerprint(settings: Settings, calls: Sequence[Sequence[str]], files: Iterable[Path]) -> str:
    """Name what a step depends on: the release, its words, the sources as their sizes and times tell, its inputs."""
    parts: list[Any] = [opforge.__version__, [list(words) for words in calls]]
    for path in sources(settings):
        with contextlib.suppress(FileNotFoundError):  # another program's, that was there for a moment
            status = path.stat()
            parts.append([str(path), status.st_size, status.st_mtime_ns])
    parts += [[str(path), file_hash(path)] for path in files]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogateescape")).hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file; "" where it is not there."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
