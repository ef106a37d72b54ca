"""Run the compiler: units to objects with their dependencies, objects to one shared object."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from opforge.build.toolchain import Compiler
from opforge.codegen.units import Unit
from opforge.errors import ArgumentError, BuildError, ToolchainError

__all__ = ["compile_units", "link", "processors", "read_depfile"]

# One unit of generated code takes a second or two; an author's may take long, but not forever.
_TIMEOUT_SECONDS = 600.0
_SHOWN_LINES = 40
_Job = TypeVar("_Job")
_Done = TypeVar("_Done")


def compile_units(
    compiler: Compiler, units: Sequence[Unit], flags: Sequence[str], folder: Path, where: str
) -> tuple[list[Path], list[Path], str]:
    """Compile `units` in `folder`, several at a time; return objects, all files that they read, and warnings.

    Raises:
        BuildError: the compiler refuses a unit; the message carries its words.
        ToolchainError: the compiler is gone.
    """
    for unit in units:
        (folder / unit.name).write_text(unit.text, encoding="utf-8")
    results = _in_threads(lambda unit, running: _compile(compiler, unit, flags, folder, where, running), units)
    objects = [folder / f"{unit.name}.o" for unit in units]
    dependencies: dict[Path, None] = {}
    for unit in units:
        dependencies.update(dict.fromkeys(read_depfile(folder / f"{unit.name}.d", folder)))
    generated = {folder / unit.name for unit in units}
    return objects, [path for path in dependencies if path not in generated], "".join(results)


def link(compiler: Compiler, objects: Sequence[Path], output: Path, flags: Sequence[str], where: str) -> None:
    """Link `objects` into the shared object `output`."""
    command = [*compiler.command, *map(str, objects), "-o", str(output), *flags, "-lm"]
    ((code, text),) = _in_threads(lambda words, running: running.run(words, output.parent), [command])
    if code:
        hint = "define the symbol that the sources use, or do not use it"
        raise BuildError("the link failed", where=where, got=f"\n{_shorten(text)}", hint=hint)


def _in_threads(work: Callable[[_Job, _Processes], _Done], jobs: Sequence[_Job]) -> list[_Done]:
    """Do the jobs, several at a time; an interrupt, which comes to this thread, ends all of them.

    No compiler is started by this thread itself: the interrupt could come between its start and the note that it runs.
    """
    running = _Processes()
    with ThreadPoolExecutor(max(1, min(len(jobs), processors()))) as pool:
        try:
            return list(pool.map(lambda job: work(job, running), jobs))
        except BaseException:
            running.stop()
            pool.shutdown(cancel_futures=True)
            raise


def read_depfile(path: Path, folder: Path) -> list[Path]:
    """Return the files that a compiler-written make rule names, without its target."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    names = re.findall(r"(?:\\.|[^\s\\])+", text.split(":", 1)[1])
    return [(folder / re.sub(r"\\(.)", r"\1", name).replace("$$", "$")).resolve() for name in names]


def _compile(
    compiler: Compiler, unit: Unit, flags: Sequence[str], folder: Path, where: str, running: _Processes
) -> str:
    source, target = unit.name, f"{unit.name}.o"
    command = [*compiler.command, "-c", source, "-o", target, "-MMD", "-MF", f"{unit.name}.d", *flags, *unit.flags]
    code, text = running.run(command, folder)
    if code == 0:
        return text
    place = re.search(r"^(?!In file)(\S[^:\n]*:\d+)(?::\d+)?: (?:fatal )?error: (.*)$", text, re.MULTILINE)
    raise BuildError(
        f"the compiler refuses the kernel: {place[2]}" if place else f"the compiler failed with status {code}",
        where=f"{where}: {place[1]}" if place else where,
        got=f"from {compiler}:\n{_shorten(text)}",
        hint=_hint(unit, place[1] if place else "", code, command),
    )


def _hint(unit: Unit, place: str, code: int, command: Sequence[str]) -> str:
    if code < 0:
        return f"the compiler was killed by signal {-code} ({signal.Signals(-code).name}); is there enough memory?"
    if unit.hint and (place in unit.places or place.startswith(unit.name + ":")):
        return unit.hint
    if not place:
        return f"see whether the compiler works at all: {command[0]} --version"
    return f"correct the line {place} and build again"


def _timeout() -> float:
    text = os.environ.get("OPFORGE_COMPILE_TIMEOUT", "")
    try:
        seconds = float(text or _TIMEOUT_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:  # nan is not either
        raise ArgumentError("no time", where="OPFORGE_COMPILE_TIMEOUT", expected="seconds, more than 0", got=text)
    return seconds


def _shorten(text: str) -> str:
    lines = text.strip().splitlines()
    kept = lines[:_SHOWN_LINES]
    if len(lines) > len(kept):
        kept.append(f"... {len(lines) - len(kept)} more lines")
    return "\n".join("    " + line for line in kept)


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Processes:
    """Compilers that run now, each in its own process group: an interrupt or timeout takes its children along."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, command: Sequence[str], folder: Path) -> tuple[int, str]:
        """Run a command and return its status and words."""
        timeout = _timeout()
        with self._lock:
            if self._stopped:
                raise BuildError("the build was stopped", where=command[0])
            process = _start(command, folder)
            self._running.add(process)
        try:
            text, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            _kill(process)
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise BuildError(
                    f"the compiler did not finish in {timeout:g} s",
                    where=" ".join(command[:4]),
                    hint="simplify the kernel, or raise OPFORGE_COMPILE_TIMEOUT (seconds)",
                ) from None
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode, text

    def stop(self) -> None:
        """Kill what runs and let nothing more start."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _start(command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},
        )
    except OSError as error:  # it ran when it was looked for
        raise ToolchainError(
            "the compiler cannot be started any more",
            where=command[0],
            expected="the program that was found",
            got=error,
            hint="install it again, and start anew",
        ) from error


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
