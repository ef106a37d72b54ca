"""What a .pte says of itself: its methods and the operators that each calls.

The file is a flatbuffer (ExecuTorch's schema/program.fbs). Few fields are read, every place is checked, and
ExecuTorch verifies the rest when it loads the file.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opforge.errors import CorruptFileError

__all__ = ["PteProgram", "read_program"]

_IDENTIFIER: Final = b"ET"
_MOST: Final = 1 << 20  # methods, or operators of a method: beyond that no file is honest
# Fields by their number in the schema.
_PROGRAM_PLANS: Final = 1
_PLAN_NAME: Final = 0
_PLAN_OPERATORS: Final = 6
_OPERATOR_NAME: Final = 0
_OPERATOR_OVERLOAD: Final = 1


@dataclass(frozen=True)
class PteProgram:
    """Methods of a file, and the operators of each as ``namespace::name.overload``."""

    methods: dict[str, tuple[str, ...]]


def read_program(path: Path) -> PteProgram:
    """Read a .pte.

    Raises:
        CorruptFileError: the file is no .pte, or is cut off or damaged where it names its operators.
    """
    size = path.stat().st_size
    if size < 8:
        raise CorruptFileError("not a .pte", where=str(path), expected="a flatbuffer", got=f"{size} bytes")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[4:6] != _IDENTIFIER:
            raise CorruptFileError(
                "not a .pte", where=str(path), expected="the identifier ET12", got=repr(bytes(data[4:8]))
            )
        try:
            table = _Table(data, _word(data, 0))
            return PteProgram(
                {
                    plan.text(_PLAN_NAME): tuple(
                        ".".join(filter(None, (operator.text(_OPERATOR_NAME), operator.text(_OPERATOR_OVERLOAD))))
                        for operator in plan.tables(_PLAN_OPERATORS)
                    )
                    for plan in table.tables(_PROGRAM_PLANS)
                }
            )
        except (struct.error, UnicodeDecodeError, _OutsideError):
            raise CorruptFileError(
                "the file is cut off or damaged",
                where=str(path),
                got=f"{size} bytes",
                hint="lower the model again, or copy the file again",
            ) from None


class _OutsideError(Exception):
    """A place outside the file."""


def _word(data: mmap.mmap, place: int, form: str = "<I") -> int:
    if not 0 <= place <= len(data) - struct.calcsize(form):
        raise _OutsideError
    value: int = struct.unpack_from(form, data, place)[0]
    return value


class _Table:
    """A table of a flatbuffer: fields by number, found through a table of offsets."""

    def __init__(self, data: mmap.mmap, place: int) -> None:
        self._data, self._place = data, place
        self._offsets = place - _word(data, place, "<i")
        self._count = (_word(data, self._offsets, "<H") - 4) // 2

    def _target(self, field: int) -> int | None:
        """Give the place that an offset field points to, or None where the field is not there."""
        if field >= self._count:
            return None
        offset = _word(self._data, self._offsets + 4 + 2 * field, "<H")
        if offset == 0:
            return None
        return self._place + offset + _word(self._data, self._place + offset)

    def text(self, field: int) -> str:
        """Return a text, "" where there is none."""
        target = self._target(field)
        if target is None:
            return ""
        length = _word(self._data, target)
        if target + 4 + length > len(self._data):
            raise _OutsideError
        return self._data[target + 4 : target + 4 + length].decode("utf-8")

    def tables(self, field: int) -> Iterator[_Table]:
        """Give the tables of a list."""
        target = self._target(field)
        count = 0 if target is None else _word(self._data, target)
        if count > _MOST:
            raise _OutsideError
        for k in range(count):
            assert target is not None
            place = target + 4 + 4 * k
            yield _Table(self._data, place + _word(self._data, place))
