"""What a .pte says of itself: its methods and the operators that each calls.

The file is a flatbuffer (ExecuTorch's schema/program.fbs). Few fields are read, every place is checked, and
ExecuTorch verifies the rest when it loads the file.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opforge.engines.executorch._flatbuffer import OutsideError, root
from opforge.errors import CorruptFileError

__all__ = ["PteProgram", "read_program"]

_IDENTIFIER: Final = b"ET"
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
            return PteProgram(
                {
                    plan.text(_PLAN_NAME): tuple(
                        ".".join(filter(None, (operator.text(_OPERATOR_NAME), operator.text(_OPERATOR_OVERLOAD))))
                        for operator in plan.tables(_PLAN_OPERATORS)
                    )
                    for plan in root(data).tables(_PROGRAM_PLANS)
                }
            )
        except (UnicodeDecodeError, OutsideError):
            raise CorruptFileError(
                "the file is cut off or damaged",
                where=str(path),
                got=f"{size} bytes",
                hint="lower the model again, or copy the file again",
            ) from None
