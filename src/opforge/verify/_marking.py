"""Values inside a model, as an engine computes them: they are marked as outputs, and the model is loaded anew."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from opforge.engines import Array
from opforge.errors import OpforgeError
from opforge.onnx._write import write_model
from opforge.verify._graph import Graph
from opforge.verify._inputs import flat_values
from opforge.verify._runs import loader

__all__ = ["Probe"]

_AT_ONCE = 256
"""Values that are marked in one load where many are wanted."""


class Probe:
    """One engine that loads variants of a model; use it in a ``with`` statement.

    Attributes:
        loads: how many variants it has loaded.
    """

    def __init__(
        self, engine: str, *, threads: int | None = None, isolate: bool = False, packages: Sequence[str] = ()
    ) -> None:
        self.engine = engine
        self.loads = 0
        self._threads = threads
        self._loader = loader(engine, isolate=isolate, packages=packages)
        self._folder = tempfile.TemporaryDirectory(prefix="opforge-")

    def __enter__(self) -> Probe:
        self._loader.__enter__()
        return self

    def __exit__(self, *trace: object) -> None:
        self._loader.__exit__(*trace)
        self._folder.cleanup()

    def run(self, model: onnx.ModelProto, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Load a model and run it once."""
        self.loads += 1
        path = Path(self._folder.name) / "probe.onnx"
        write_model(model, path)
        return flat_values(self._loader.load(path, threads=self._threads).run(inputs))

    def values(self, graph: Graph, names: Iterable[str], inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Return marked values, and the model's outputs with them."""
        return self.run(graph.marked(names), inputs)

    def all_values(self, graph: Graph, names: Sequence[str], inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Return many values, some hundred at a time; those that the engine refuses to give are left out."""
        found: dict[str, Array] = {}
        pending = [list(names[k : k + _AT_ONCE]) for k in range(0, len(names), _AT_ONCE)]
        while pending:
            part = pending.pop(0)
            try:
                found.update(self.values(graph, part, inputs))
            except OpforgeError:
                half = len(part) // 2
                pending += [part[:half], part[half:]] if half else []
        return found
