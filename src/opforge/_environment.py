"""The environment variables that the native runtime reads by itself: a wrong value is told before it is loaded."""

from __future__ import annotations

import os

from opforge.errors import ArgumentError

__all__ = ["check_runtime_variables", "faults_reported", "isa", "report_faults", "thread_count"]

_ISAS = ("baseline", "neon") if os.uname().machine in ("aarch64", "arm64") else ("baseline", "v3", "v4")
_MOST_THREADS = 256


def isa() -> str | None:
    """Return ``OPFORGE_ISA``; None where it is not set.

    Raises:
        ArgumentError: the value names no instruction set.
    """
    value = os.environ.get("OPFORGE_ISA") or None
    if value is not None and value not in _ISAS:
        raise ArgumentError("unknown value", where="OPFORGE_ISA", expected=", ".join(_ISAS), got=repr(value))
    return value


def thread_count() -> int | None:
    """Return ``OPFORGE_NUM_THREADS``; None where it is not set.

    Raises:
        ArgumentError: the value is no number of threads.
    """
    value = os.environ.get("OPFORGE_NUM_THREADS") or None
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= _MOST_THREADS:
        raise ArgumentError(
            "unknown value",
            where="OPFORGE_NUM_THREADS",
            expected=f"a number from 1 to {_MOST_THREADS}",
            got=repr(value),
        )
    return int(value)


def check_runtime_variables() -> None:
    """Raise where ``OPFORGE_ISA`` or ``OPFORGE_NUM_THREADS`` is wrong; the runtime itself would take it as not set."""
    isa()
    thread_count()


def report_faults() -> None:
    """Have kernels that crash in sessions told, here and in processes that start here; a user's own value stands."""
    os.environ.setdefault("OPFORGE_REPORT_FAULTS", "1")


def faults_reported() -> bool:
    """Whether ``OPFORGE_REPORT_FAULTS`` is on."""
    return os.environ.get("OPFORGE_REPORT_FAULTS") == "1"
