"""The parts of the device check: a process each, with a time limit, so that one that hangs costs the others nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tools.device_check.machine import found_tool

__all__ = ["STAGES", "Part", "Running"]

ROOT: Final = Path(__file__).resolve().parents[2]
_SANITIZERS: Final = ("memcheck", "racecheck")


@dataclass(frozen=True)
class Part:
    """One process.

    Attributes:
        name: unique.
        words: what Python runs.
        limit: seconds.
        needs: a module that must be importable, "" = none.
        tool: a program of the toolkit that Python runs under, "" = none; left out where it is not here.
        tool_words: its options.
    """

    name: str
    words: tuple[str, ...]
    limit: float
    needs: str = ""
    tool: str = ""
    tool_words: tuple[str, ...] = field(default=())


def _tests(name: str, limit: float, needs: str = "") -> Part:
    words = ("-m", "pytest", "-q", "-rfEs", "--tb=short", "-p", "no:cacheprovider", f"tests/device/{name}.py")
    return Part(name, words, limit, needs)


def _bench(name: str, limit: float) -> Part:
    return Part(f"bench_{name}", ("-m", "tools.device_check.benchmark", name), limit, "torch")


def _sanitizer(name: str) -> Part:
    words = ("-m", "tools.device_check.small_calls")
    options = ("--tool", name, "--error-exitcode", "97", "--print-limit", "20")
    return Part(name, words, 70, tool="compute-sanitizer", tool_words=options)


STAGES: Final[tuple[tuple[Part, ...], ...]] = (
    # Together: they do not take time. The first compiles for the benchmark what takes long, without the GPU.
    (
        Part("prepare", ("-m", "tools.device_check.prepare"), 150, "torch"),
        _tests("test_kernels", 150),
        _tests("test_streams", 90),
        _tests("test_launcher", 60),
        _tests("test_libraries", 90),
        _tests("test_onnxruntime", 90, "onnxruntime"),
        _tests("test_jax", 120, "jax"),
        _tests("test_tensorflow", 120, "tensorflow"),
    ),
    # After the accelerator has been built, which it takes where it is there.
    (_tests("test_torch", 150, "torch"),),
    # Alone on the machine, one after the other.
    (_bench("ceilings", 40),),
    (_bench("sparse", 50),),
    (_bench("elementwise", 110),),
    (_bench("launch", 50),),
    (_bench("gradients", 90),),
    tuple(_sanitizer(name) for name in _SANITIZERS),
    (Part("tune", ("-m", "tools.device_check.tuned"), 75),),
)


class Running:
    """A part under way: its output goes to a file, and it ends with its process group."""

    def __init__(self, part: Part, environment: Mapping[str, str], folder: Path, limit: float) -> None:
        """Start it. `limit` is what is left of the whole, where that is less."""
        self.part = part
        self.log = folder / f"{part.name}.log"
        self._limit = min(part.limit, limit)
        self._started = time.monotonic()
        self._file: IO[bytes] = self.log.open("wb")
        self._process = subprocess.Popen(
            [*_prefix(part), sys.executable, *part.words],
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def finished(self) -> bool:
        """Whether it has ended; one that is over its limit is ended here."""
        if self._process.poll() is None and time.monotonic() - self._started < self._limit:
            return False
        return True

    def result(self) -> dict[str, Any]:
        """End it where it has not, and say what came of it."""
        timed_out = self._process.poll() is None
        seconds = time.monotonic() - self._started
        if timed_out:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(3)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._file.close()
        code = self._process.returncode
        # pytest ends with 5 where a file has no test
        state = "timed out" if timed_out else "passed" if code == 0 else "nothing to do" if code == 5 else "FAILED"
        return {"name": self.part.name, "state": state, "code": code, "seconds": round(seconds, 2), "log": self.tail()}

    def tail(self, size: int = 6000) -> str:
        """Return the end of the output."""
        return self.log.read_bytes()[-size:].decode("utf-8", "replace")


def _prefix(part: Part) -> Sequence[str]:
    if not part.tool:
        return []
    tool = found_tool(part.tool)
    return [str(tool), *part.tool_words] if tool is not None else []
