"""Native adapters: loading one, calling its functions, and the exceptions of what they report."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Final

from opforge.errors import (
    ArgumentError,
    CorruptFileError,
    DtypeError,
    InternalError,
    MissingOperatorError,
    OpforgeError,
    UnsupportedError,
)

__all__ = ["STATUS_ERRORS", "TEXT_SIZE", "call_native", "load_native", "native_file", "to_error"]

TEXT_SIZE: Final = 16384
"""Bytes of the buffer for what a function says; longer texts end there."""

STATUS_ERRORS: Final[dict[int, type[OpforgeError]]] = {
    1: ArgumentError,
    2: DtypeError,
    3: UnsupportedError,
    5: CorruptFileError,
    6: MissingOperatorError,
}
"""``OPFORGE_STATUS_*`` -> class; all others are internal errors."""


def native_file(path: Path, what: str) -> Path:
    """Return the path of an adapter's file.

    Raises:
        MissingOperatorError: this installation lacks it.
    """
    if not path.is_file():
        raise MissingOperatorError(f"the {what} is not there", where=str(path), hint="install opforge again")
    return path


def load_native(path: Path, what: str) -> ctypes.CDLL:
    """Load an adapter; its names stay its own.

    Raises:
        MissingOperatorError: the file is not there.
        UnsupportedError: it does not load.
    """
    try:
        return ctypes.CDLL(str(native_file(path, what)), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise UnsupportedError(f"the {what} does not load", where=str(path), got=str(error)) from None


def call_native(
    function: Callable[..., int],
    *arguments: object,
    error: Callable[[int, str], OpforgeError] = lambda status, text: STATUS_ERRORS.get(status, InternalError)(text),
) -> None:
    """Call a function of an adapter that ends with a buffer for its words and the buffer's size.

    Raises:
        OpforgeError: what it reports, as the class of its status (or what ``error`` makes of status and words).
    """
    text = ctypes.create_string_buffer(TEXT_SIZE)
    status = function(*arguments, text, TEXT_SIZE)
    if status:
        raise error(status, text.value.decode("utf-8", "replace"))


def to_error(status: int, text: str) -> OpforgeError:
    """Make the exception of a status from the text that C++ composed."""
    head, *lines = text.split("\n")
    answers: dict[str, str] = {}
    current = ""
    for line in lines:
        for label, key in (("  expected: ", "expected"), ("  got: ", "got"), ("  to do: ", "hint")):
            if line.startswith(label):
                current = key
                answers[key] = line[len(label) :]
                break
        else:
            if current:
                answers[current] += "\n" + line
            else:
                head += "\n" + line
    return STATUS_ERRORS.get(status, InternalError)(
        head, expected=answers.get("expected"), got=answers.get("got"), hint=answers.get("hint")
    )
