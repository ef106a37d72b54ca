"""What a check is about to call, told before it calls: a kernel that ends its process is then known by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Call", "announce", "listen"]


class Call(NamedTuple):
    """One call of an operator, or of its gradient."""

    check: str
    case: str
    host: str
    dtype: str


_listener: Callable[[Call], None] | None = None


def announce(check: str, case: str, host: str, dtype: str = "") -> None:
    """Tell whoever listens; a check calls this before each call of a kernel."""
    if _listener is not None:
        _listener(Call(check, case, host, dtype))


def listen(listener: Callable[[Call], None] | None) -> None:
    """Have calls told from now on, in this process."""
    global _listener
    _listener = listener
