"""An engine in a process of its own, so that one that crashes or hangs is a finding and not the end of the run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opforge.engines import TensorInfo
from opforge.errors import EngineCrash, UnsupportedError
from opforge.verify._declared import declaration_of
from opforge.verify._jobs import how_to_find_in
from opforge.verify._kernels import NO_KERNELS, Kernels
from opforge.verify._packed import unpacked
from opforge.verify._signals import ended, last_words
from opforge.verify._spawn import spawn

__all__ = ["EngineProcess"]

_PATIENCE = 5.0
"""Seconds that a process may take to end when it is told to."""


class EngineProcess:
    """Starts at once; the first load waits for it. A crash is an error, and the next load starts anew.

    Args:
        engine: its name.
        packages: operator packages to load there, as ``opforge.load`` takes them.
        timeout: seconds that loading or a run may take; None = as long as it likes.
        kernels: of authors, which its models hold.

    Raises:
        UndeclaredError: another process cannot declare one of them.
    """

    def __init__(
        self,
        engine: str,
        *,
        packages: Sequence[str] = (),
        timeout: float | None = None,
        kernels: Kernels = NO_KERNELS,
    ) -> None:
        self.engine = engine
        self._packages = tuple(packages)
        self._declared = tuple(declaration_of(one) for one in kernels.operators)
        self._hint = how_to_find_in(kernels) or None
        self._timeout = timeout
        self._log = tempfile.TemporaryFile()
        self._greeted = False  # whether the answer to "start" is in
        self._lost = False
        self._start()

    def load(self, model: Path, *, threads: int | None = None) -> _Loaded:
        """Load a model there; the one before is let go.

        Raises:
            EngineCrash: the process ended, or took longer than the timeout.
            OpforgeError: what the engine says.
        """
        if self._lost:
            self.close()
            self._start()
        if not self._greeted:
            self._lost = True  # unless it starts
            self._answer()
            self._greeted, self._lost = True, False
        infos, outputs = self._ask("load", Path(model).absolute(), threads)
        return _Loaded(self, infos, outputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the loaded model."""
        results: dict[str, Any] = self._ask("run", dict(inputs))
        return results

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *trace: object) -> None:
        self.close()
        self._log.close()

    def _start(self) -> None:
        # What this process imports, that one does; but nothing from the folder that it happens to stand in.
        paths = os.pathsep.join(p for p in sys.path if p)
        self._process, self._pipe = spawn("opforge.verify._worker", self._log, paths)
        self._greeted = self._lost = False
        self._pipe.send(("start", (self.engine, self._packages, self._declared)))

    def _ask(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - what the request gives
        try:
            self._pipe.send((name, arguments))
        except OSError:
            raise self._crash() from None
        return self._answer()

    def _answer(self) -> Any:  # noqa: ANN401 - what the request gives
        try:
            if not self._pipe.poll(self._timeout):
                self._process.kill()
                self._process.wait()
                self._lost = True
                raise EngineCrash(f"no answer after {self._timeout:g} s", where=self.engine, hint=self._hint)
            kind, answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._crash() from None
        if kind == "failed":
            refused = UnsupportedError("the engine fails", where=self.engine, got=f"{answer[0]}: {answer[2]}")
            raise unpacked(answer) or refused
        return answer

    def _crash(self) -> EngineCrash:
        self._lost = True
        try:
            status = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        how = f"crashed, signal {-status} ({ended(status)})" if status < 0 else f"ended with {ended(status)}"
        self._log.seek(0)
        said = last_words(self._log.read().decode(errors="replace"))
        return EngineCrash(how, where=self.engine, got=said or "no word on its error output", hint=self._hint)


class _Loaded:
    """The model that the process holds."""

    def __init__(self, process: EngineProcess, inputs: Sequence[TensorInfo], outputs: Sequence[str]) -> None:
        self.inputs, self.outputs, self.run = inputs, outputs, process.run
