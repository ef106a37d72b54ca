"""The process in which one engine runs by itself: `python -m opforge.verify._worker FD`, spoken to by `_process`."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from opforge._environment import report_faults
from opforge.verify._spawn import end_with_parent

__all__ = ["main"]


def main() -> None:
    """Answer requests until the other side closes: ("start", ...), ("load", ...), ("run", ...)."""
    end_with_parent()
    report_faults()
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.dup2(2, 1)  # what an engine prints is none of the user's output
    served = _Served()
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[Any, ...] = ("done", getattr(served, name)(*arguments))
        except BaseException as problem:
            from opforge.verify._packed import packed

            answer = ("failed", packed(problem))
        pipe.send(answer)


class _Served:
    """An engine, and the model that it has loaded."""

    def __init__(self) -> None:
        self._engine: Any = None
        self._loaded: Any = None

    def start(self, engine: str, packages: tuple[str, ...], declared: tuple[Any, ...]) -> None:
        from opforge.schema import load
        from opforge.verify._declared import declare_all
        from opforge.verify._engines import find_engine

        for package in packages:
            load(package)
        declare_all(declared)
        self._engine = find_engine(engine)

    def load(self, model: Path, threads: int | None) -> tuple[list[Any], list[str]]:
        self._loaded = None
        self._loaded = self._engine.load(model, threads=threads)
        return list(self._loaded.inputs), list(self._loaded.outputs)

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        results: dict[str, Any] = self._loaded.run(inputs)
        return results


if __name__ == "__main__":
    main()
