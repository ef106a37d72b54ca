"""Reading flatbuffers, as ExecuTorch writes them, without generated code: every place is checked."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import Final

__all__ = ["OutsideError", "Table", "root"]

Buffer = bytes | mmap.mmap

_MOST: Final = 1 << 20
"""Tables of one list: beyond that no file is honest."""


class OutsideError(Exception):
    """A place outside the file, or a list beyond reason."""


def _number(data: Buffer, place: int, form: str = "<I") -> int:
    if not 0 <= place <= len(data) - struct.calcsize(form):
        raise OutsideError
    value: int = struct.unpack_from(form, data, place)[0]
    return value


class Table:
    """A table: fields by their number in the schema, found through a list of offsets."""

    def __init__(self, data: Buffer, place: int) -> None:
        """Look at the table that begins at a place."""
        self._data, self._place = data, place
        self._offsets = place - _number(data, place, "<i")
        self._count = (_number(data, self._offsets, "<H") - 4) // 2

    def _field(self, field: int) -> int | None:
        """Give the place of a field, or None where the table leaves it out."""
        if field >= self._count:
            return None
        offset = _number(self._data, self._offsets + 4 + 2 * field, "<H")
        return self._place + offset if offset else None

    def _target(self, field: int) -> int | None:
        place = self._field(field)
        return None if place is None else place + _number(self._data, place)

    def number(self, field: int, form: str, default: int = 0) -> int:
        """Return a number; ``form`` is that of `struct`."""
        place = self._field(field)
        return default if place is None else _number(self._data, place, form)

    def text(self, field: int) -> str:
        """Return a text, "" where there is none."""
        target = self._target(field)
        if target is None:
            return ""
        length = _number(self._data, target)
        if target + 4 + length > len(self._data):
            raise OutsideError
        return self._data[target + 4 : target + 4 + length].decode("utf-8")

    def table(self, field: int) -> Table | None:
        """Return a table, or None where there is none."""
        target = self._target(field)
        return None if target is None else Table(self._data, target)

    def tables(self, field: int) -> Iterator[Table]:
        """Give the tables of a list."""
        target = self._target(field)
        if target is None:
            return
        count = _number(self._data, target)
        if count > _MOST:
            raise OutsideError
        for place in range(target + 4, target + 4 + 4 * count, 4):
            yield Table(self._data, place + _number(self._data, place))


def root(data: Buffer) -> Table:
    """Return the outermost table of a file."""
    return Table(data, _number(data, 0))
