"""Find a C++ compiler and say exactly what it is, or why each candidate does not serve."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from opforge.errors import Candidate, ToolchainError

__all__ = ["INSTALL_HINT", "Compiler", "find_compiler", "forget_compiler", "probe_compiler"]

INSTALL_HINT = (
    "install g++ >= 9 or clang++ >= 10 (Debian, Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; "
    "conda: conda install gxx; macOS: xcode-select --install), or set CXX to one"
)

_NAMES = ("g++", "clang++", "c++", *(f"g++-{v}" for v in range(15, 8, -1)), *(f"clang++-{v}" for v in range(21, 9, -1)))
_MINIMUM = {"gcc": 9, "clang": 10}
_PROBE_SECONDS = 60.0  # a fraction of one on an idle machine


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that passed the probe.

    Attributes:
        command: how to call it (more than one word for launchers such as ccache).
        kind: "gcc" or "clang".
        version: as it reports it.
        target: e.g. "x86_64-linux-gnu".
        native: whether ``-march=native`` works.
        macros: names of the instruction-set macros that ``-march=native`` defines.
        identity: what a cached result depends on: path, version, target and the meaning of ``-march=native``.
    """

    command: tuple[str, ...]
    kind: str
    version: str
    target: str
    native: bool
    macros: frozenset[str] = field(repr=False)
    identity: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.version} ({' '.join(self.command)}, {self.target})"


_found: dict[tuple[str | None, str | None], Compiler] = {}


def forget_compiler() -> None:
    """Forget the probe's result, for tests that change the environment in place."""
    _found.clear()


def find_compiler() -> Compiler:
    """Return the compiler named by ``CXX``, else the first of g++ and clang++ on the PATH that works.

    Raises:
        ToolchainError: none works; each candidate is listed with its reason.
    """
    chosen, path = os.environ.get("CXX"), os.environ.get("PATH")
    if (chosen, path) in _found:
        return _found[chosen, path]
    rejected: list[Candidate] = []
    if chosen and chosen.strip():
        commands = [tuple(shlex.split(chosen))]
        label = "CXX="
    else:
        commands = [(name,) for name in _NAMES]
        label = ""
    for command in commands:
        if shutil.which(command[0]) is None:
            if label or command[0] in _NAMES[:3]:
                rejected.append(Candidate(label + " ".join(command), "not found on PATH" if label else "not on PATH"))
            continue
        result = probe_compiler(command)
        if isinstance(result, Compiler):
            _found[chosen, path] = result
            return result
        rejected.append(Candidate(label + " ".join(command), result))
    rows = "".join(f"\n    {c.name}: {c.reason}" for c in rejected)
    raise ToolchainError(
        "no C++ compiler works", expected="a C++17 compiler", got=f"candidates:{rows}", hint=INSTALL_HINT
    )


def probe_compiler(command: tuple[str, ...]) -> Compiler | str:
    """Ask a compiler for its macros in one call; return why it does not serve otherwise."""
    for native in (True, False):
        flags = ["-march=native"] if native else []
        try:
            done = subprocess.run(
                [*command, *flags, "-std=c++17", "-v", "-dM", "-E", "-x", "c++", os.devnull],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_PROBE_SECONDS,
                env={**os.environ, "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"does not run: {error}"
        if done.returncode == 0:
            break
    else:
        words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return f"does not preprocess C++17: {words[-1]}"
    defined = dict(re.findall(r"^#define (\w+) ?(.*)$", done.stdout, re.MULTILINE))
    kind = "clang" if "__clang__" in defined else "gcc" if "__GNUC__" in defined else ""
    if not kind:
        return "neither GCC nor Clang (vector extensions are needed)"
    prefix = "__clang_" if kind == "clang" else "__GNUC_"
    major = int(defined["__clang_major__"] if kind == "clang" else defined["__GNUC__"])
    parts = (str(major), defined.get(f"{prefix}{'minor__' if kind == 'clang' else 'MINOR__'}", "0"),
             defined.get("__clang_patchlevel__" if kind == "clang" else "__GNUC_PATCHLEVEL__", "0"))  # fmt: skip
    if major < _MINIMUM[kind]:
        return f"{kind} {'.'.join(parts)} is too old, {_MINIMUM[kind]} is the oldest that serves"
    target = re.search(r"^Target: (\S+)", done.stderr, re.MULTILINE)
    where = Path(shutil.which(command[0]) or command[0]).resolve()
    version = defined.get("__VERSION__", "")
    identity = "\n".join([str(where), *command[1:], version, str(target and target[1]), done.stdout])
    return Compiler(
        command=command,
        kind=kind,
        version=".".join(parts),
        target=target[1] if target else "unknown",
        native=native,
        macros=frozenset(name for name in defined if name.startswith("__")),
        identity=hashlib.sha256(identity.encode()).hexdigest(),
    )
