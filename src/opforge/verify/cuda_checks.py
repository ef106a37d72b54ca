"""CUDA kernels under sanitizers on the CPU: races, missing barriers, accesses out of bounds, in the emulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from opforge.build import abi
from opforge.cuda import emulate_operators
from opforge.cuda.calls import findings, sanitized_environment
from opforge.cuda.emulator import Mode
from opforge.errors import ArgumentError
from opforge.schema import Operator
from opforge.verify._rows import Row
from opforge.verify.hosts import EMULATED, emulated_operators
from opforge.verify.isolated import run_isolated

__all__ = ["emulated_sanitized"]

_MODES: Final[dict[str, Mode]] = {"address": "address", "undefined": "address", "thread": "thread"}
_DRAWN: Final = {"address": 8, "thread": 0}
"""Cases drawn besides the operator's own; a thread of an emulated block takes a millisecond under ThreadSanitizer."""


def emulated_sanitized(operator: Operator, names: Sequence[str], seed: int) -> Iterator[Row]:
    """Run the cases of the operator's CUDA kernels, and of its gradient's, with each sanitizer; a row per fault.

    Raises:
        ArgumentError: there is no such sanitizer.
        ToolchainError: no compiler, or it has no runtime of the sanitizer.
        UnsupportedError: another process cannot declare the operator.
    """
    unknown = [name for name in names if name not in _MODES]
    if unknown:
        raise ArgumentError("there is no such sanitizer", where="check", expected=", ".join(_MODES), got=unknown[0])
    for mode in dict.fromkeys(_MODES[name] for name in names):
        library = emulate_operators(emulated_operators(operator), mode=mode)
        prefix, changes = sanitized_environment(mode)
        for member in [operator, *(one for one in operator.derived if one.is_formula)]:
            outcome = run_isolated(
                operator,
                "cases",
                seed,
                drawn=_DRAWN[mode],
                library=library.path,
                device=abi.DEVICE_CUDA,
                narrow=mode == "thread",
                derived="" if member is operator else member.name,
                environment=changes,
                prefix=prefix,
            )
            check, last = f"sanitize {mode}", outcome.last
            found = findings(outcome.errors)
            for one in found:
                yield Row(check, str(last.get("case", "")), EMULATED, str(last.get("dtype", "")), False, str(one))
            if outcome.code and not found:
                words = "\n".join(outcome.errors.strip().splitlines()[-12:])
                detail = f"the instrumented process ended by {outcome.ending}:\n{words}"
                yield Row(check, str(last.get("case", "")), EMULATED, str(last.get("dtype", "")), False, detail)
            elif not found:
                calls = sum(event["event"] == "call" for event in outcome.events)
                yield Row(check, f"{member.name}, {calls} calls", EMULATED, "", True)
