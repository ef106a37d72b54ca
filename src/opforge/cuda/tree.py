"""What the emulator's compiler reads: sources and what they include, translated, in a copy of their folders."""

from __future__ import annotations

import re
from pathlib import Path

from opforge import _paths
from opforge.cuda.source import includes, rewrite

__all__ = ["BEGIN", "Tree"]

BEGIN = '#include "opforge/cuda/emulator.h"\n'
"""The first line of every unit."""

_FOLDER = "sources"
_ABSOLUTE = re.compile(r'^(\s*#\s*include\s*)"(/[^"\n]+)"', re.MULTILINE)


class Tree:
    """Translated files by their places in the compiler's folder.

    An author's files lie there as they lie on the disk, so that each finds what it includes from beside it. Our
    headers are translated where they hold kernels (.cuh); the others are taken from where they are.

    Attributes:
        files: text by place.
        read: the author's files among them.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.read: list[Path] = []

    def unit(self, text: str, name: str) -> str:
        """Translate generated source, and what it includes; absolute paths become places in the tree."""
        self._follow(text, None)
        placed = _ABSOLUTE.sub(lambda found: f'{found[1]}"{_place(Path(found[2]))}"', text)
        return f"{BEGIN}{rewrite(placed, name)}"

    def source(self, path: Path) -> str:
        """Translate an author's file, and return the text of a unit that includes it."""
        return self.unit(f'#include "{path.resolve()}"\n', path.name)

    def _follow(self, text: str, folder: Path | None) -> None:
        """Add what `text`, which lies in `folder`, includes in quotes; the compiler words what is missing."""
        for name in includes(text):
            beside = None if folder is None and not Path(name).is_absolute() else (folder or Path()) / name
            if beside is not None and beside.is_file():
                self._add(beside.resolve(), _place(beside), ours=False)
            elif name.endswith(".cuh") and (_paths.include_dir() / name).is_file():
                self._add(_paths.include_dir() / name, name, ours=True)

    def _add(self, path: Path, place: str, *, ours: bool) -> None:
        if place in self.files:
            return
        text = path.read_text(encoding="utf-8")
        self.files[place] = rewrite(text, str(path))
        if not ours:
            self.read.append(path)
        self._follow(text, None if ours else path.parent)


def _place(path: Path) -> str:
    return f"{_FOLDER}{path.resolve().as_posix()}"
