"""What a plugin has to say of a failure: TensorRT passes no exception on, so the words are kept until somebody asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from opforge.errors import OpforgeError

__all__ = ["forget", "keep", "kept"]

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.Lock()
_first: list[OpforgeError] = []


def keep(function: Callable[P, R]) -> Callable[P, R]:
    """Keep the first error of ours that leaves the function; it goes on to TensorRT, which writes it to its log."""

    @wraps(function)
    def told(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except OpforgeError as error:
            with _lock:
                if not _first:
                    _first.append(error)
            raise

    return told


def forget() -> None:
    """Drop what is kept, before something that may fail."""
    with _lock:
        _first.clear()


def kept() -> OpforgeError | None:
    """Return the first error since, or None."""
    with _lock:
        return _first[0] if _first else None
