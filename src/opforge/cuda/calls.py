"""Calls of emulated kernels in a process of their own, and what a sanitizer said of them, as findings with lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np

from opforge.build.sanitizers import FRAME, fixed_addresses, preload
from opforge.build.toolchain import find_compiler
from opforge.cuda import _call
from opforge.cuda.emulator import ORDERS, Emulated
from opforge.errors import ArgumentError

__all__ = ["Called", "Finding", "call", "findings", "sanitized_environment"]

_SANITIZERS: Final = {"plain": (), "address": ("address", "undefined"), "thread": ("thread",)}
_OPTIONS: Final = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=0:report_signal_unsafe=0:history_size=4",
}
_SCALARS: Final = frozenset({"int32", "int64", "float32", "float64"})
_HEAD = re.compile(
    r"ERROR: AddressSanitizer: (?P<address>[\w-]+)|WARNING: ThreadSanitizer: (?P<thread>[\w -]+?) \(pid"
    r"|^(?P<file>\S+?):(?P<line>\d+):\d+: runtime error: (?P<undefined>.*)$",
    re.MULTILINE,
)
_ACCESS = re.compile(r"^\s*(?:Previous )?(?:[Aa]tomic )?(?:[Ww]rite|[Rr]ead) of size.*$", re.MULTILINE)
_WHO = re.compile(r"block \(\d+, \d+, \d+\) thread \(\d+, \d+, \d+\)")


@dataclass(frozen=True)
class Finding:
    """One fault.

    Attributes:
        what: its kind in words: "data race", "heap-buffer-overflow", or the emulator's sentence.
        places: lines of the author, "file:line"; both accesses of a race.
        threads: which threads of which blocks, where a race tells.
    """

    what: str
    places: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = " and ".join(self.places)
        who = " and ".join(self.threads)
        return self.what + (f" at {where}" if where else "") + (f" by {who}" if who else "")


@dataclass(frozen=True)
class Called:
    """What a call came to.

    Attributes:
        status: what the launcher returned: 0, or CUDA's number of an error; None where the process did not finish.
        findings: what the emulator and the sanitizer have to say, each place once.
        words: everything that the process wrote to its error stream.
    """

    status: int | None
    findings: tuple[Finding, ...]
    words: str

    @property
    def ok(self) -> bool:
        """Whether the launcher returned 0 and nobody found a fault."""
        return self.status == 0 and not self.findings


def call(
    library: Emulated,
    function: str,
    *arguments: Any,  # noqa: ANN401 - arrays, numbers or None
    order: str = "forward",
    seed: int = 1,
    timeout: float = 300.0,
) -> Called:
    """Call a launcher of the library in a process of its own.

    Args:
        library: from `opforge.cuda.emulate`, in any mode.
        function: the launcher, ``extern "C" int function(...)``.
        *arguments: NumPy arrays, given as pointers and written back to; Python ints (as int64) and floats (as
            double); NumPy scalars of int32, int64, float32, float64 in their own type; None for a null pointer, such
            as the stream.
        order: in which the threads of a block take turns: one of `opforge.cuda.emulator.ORDERS`.
        seed: of the random order.
        timeout: seconds that the call may take.

    Raises:
        ArgumentError: an argument of another kind, or no such order.
        ToolchainError: the compiler has no runtime of the sanitizer.
    """
    if order not in ORDERS:
        raise ArgumentError("no such order", where=function, expected=", ".join(ORDERS), got=order)
    with tempfile.TemporaryDirectory(prefix="opforge-cuda-") as name:
        folder = Path(name)
        described = [_described(folder, index, value, function) for index, value in enumerate(arguments)]
        request = {
            "library": str(library.path),
            "function": function,
            "arguments": described,
            "order": ORDERS.index(order),
            "seed": seed,
        }
        (folder / "call.json").write_text(json.dumps(request), encoding="utf-8")
        prefix, changes = sanitized_environment(library.mode)
        command = [*prefix, sys.executable, _call.__file__, name]
        environment = {**os.environ, **changes}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
            )
            words, code = done.stderr, done.returncode
        except subprocess.TimeoutExpired as error:
            words = (error.stderr or b"").decode("utf-8", "replace")
            return Called(None, (*findings(words), Finding(f"the call did not end within {timeout:g} s")), words)
        result = folder / "result.json"
        if not result.is_file():
            found = findings(words) or (Finding(f"the process ended with status {code}: {_last(words)}"),)
            return Called(None, found, words)
        answer = json.loads(result.read_text(encoding="utf-8"))
        for index, value in enumerate(arguments):
            if isinstance(value, np.ndarray):
                value[...] = np.fromfile(folder / f"{index}.bin", value.dtype).reshape(value.shape)
    found = findings(words)
    if answer["status"] != 0:
        found = (*found, Finding(answer["text"] or f"the launcher returned {answer['status']}"))
    return Called(answer["status"], found, words)


def sanitized_environment(mode: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return what a process that loads a library of this mode needs: words before its command, and variables.

    Raises:
        ToolchainError: the compiler has no runtime of the sanitizer.
    """
    names = _SANITIZERS[mode]
    return fixed_addresses() if names else (), {**_OPTIONS, "LD_PRELOAD": preload(find_compiler(), *names)}


def _described(folder: Path, index: int, value: object, function: str) -> dict[str, Any]:
    if isinstance(value, np.ndarray):
        (folder / f"{index}.bin").write_bytes(np.ascontiguousarray(value).tobytes())
        return {"kind": "buffer"}
    if value is None:
        return {"kind": "null"}
    if isinstance(value, np.generic) and value.dtype.name in _SCALARS:
        return {"kind": value.dtype.name, "value": value.item()}
    if isinstance(value, float):
        return {"kind": "float64", "value": value}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"kind": "int64", "value": value}
    raise ArgumentError(
        "this cannot be passed to a launcher",
        where=f"{function}, argument {index}",
        expected="a NumPy array, an int, a float, a NumPy scalar of 32 or 64 bits, or None",
        got=type(value).__name__,
    )


def findings(words: str) -> tuple[Finding, ...]:
    """Read what the sanitizers wrote: each fault at each place once."""
    heads = list(_HEAD.finditer(words))
    found: dict[tuple[str, tuple[str, ...]], Finding] = {}
    for head, following in zip_longest(heads, heads[1:]):
        text = words[head.start() : following.start() if following else len(words)]
        if head["undefined"] is not None:
            finding = Finding(head["undefined"], (f"{head['file']}:{head['line']}",))
        elif head["thread"] is not None:
            finding = Finding(head["thread"], _race_places(text), tuple(dict.fromkeys(_WHO.findall(text)))[:2])
        else:
            finding = Finding(head["address"], _first_places(text, 1))
        found.setdefault((finding.what, finding.places), finding)
    return tuple(found.values())


def _race_places(text: str) -> tuple[str, ...]:
    """The author's line of each of the two accesses."""
    starts = [access.end() for access in _ACCESS.finditer(text)][:2]
    ends = [*starts[1:], len(text)]
    return tuple(place for begin, end in zip(starts, ends, strict=True) for place in _first_places(text[begin:end], 1))


def _first_places(text: str, count: int) -> tuple[str, ...]:
    places = [
        f"{frame['file']}:{frame['line']}"
        for frame in FRAME.finditer(text)
        if "/opforge/cuda/" not in frame["file"] and "/sanitizer" not in frame["file"] and "/gcc/" not in frame["file"]
    ]
    return tuple(places[:count])


def _last(words: str) -> str:
    lines = words.strip().splitlines()
    return lines[-1] if lines else "no words"
