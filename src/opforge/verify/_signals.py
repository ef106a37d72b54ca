"""What it commonly means that a signal ended a process in which kernels ran."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["CAUSES", "ended", "how_to_find", "last_words"]

CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "SIGSEGV": "a kernel reads or writes beyond a tensor, or an output has another shape than the signature says",
        "SIGBUS": "a kernel reads or writes beyond a tensor",
        "SIGABRT": "memory beyond a tensor was written, or an exception left the kernel",
        "SIGFPE": "a kernel divides an integer by 0",
        "SIGILL": "the library was built for another processor",
        "SIGKILL": "the system ended it, commonly because memory ran out",
    }
)


_WORDS: Final = 300
_TOLD: Final = "error: "
"""What the runtime tells of a kernel that ends the process begins so."""


def ended(code: int) -> str:
    """Say how a process ended: a signal's name, or a status."""
    names = {-int(one): one.name for one in signal.Signals}
    return names.get(code, f"signal {-code}") if code < 0 else f"status {code}"


def how_to_find(target: str) -> str:
    """Say how the line of an operator that crashes is found."""
    return f"opforge check {target} --sanitize address names the line"


def last_words(said: str) -> str:
    """Return what a process said of its end: of the kernel that was running, else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line.removeprefix(_TOLD) for line in lines if line.startswith(_TOLD)]
    return (told or lines or [""])[-1][:_WORDS]
