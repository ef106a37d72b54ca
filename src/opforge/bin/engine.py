"""opforge's own runtime as an engine: compiles ONNX models on the way, loads .bin files as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opforge import _paths
from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.libraries import libraries_of
from opforge.engines import Availability, NodeTime, TensorInfo, Traits

__all__ = ["OpforgeEngine", "engine"]


class OpforgeEngine:
    """Runs .bin files, and ONNX models through the compiler."""

    name = "opforge"

    def availability(self) -> Availability:
        """Say whether the native runtime is here."""
        from opforge import __version__

        if not _paths.runtime_library().exists():
            return Availability(
                False,
                reason=f"{_paths.runtime_library()} is missing",
                hint="reinstall opforge, or run `make native` in a source tree",
            )
        return Availability(True, version=__version__)

    def traits(self) -> Traits:
        """Every dtype of the format; operators run by bytecode and kernel libraries."""
        dtypes = tuple(str(dtype) for dtype in NUMPY_DTYPES.values())
        return Traits(("cpu",), dtypes, True, ("kernels", "bodies"), (".onnx", ".bin"))

    def prepare(self) -> None:
        """Load the native runtime."""
        from opforge.bin.native import native

        native()

    def load(self, model: Path, *, threads: int | None = None) -> _Loaded:
        """Load a model; an ONNX file is compiled to a temporary .bin first."""
        from opforge.bin.session import Session

        if Path(model).suffix == ".bin":
            return _Loaded(Session(model, threads=threads, libraries=libraries_of(Path(model), search=True)))
        from opforge.bin.compiler import compile as compile_model

        with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
            target = Path(folder) / "model.bin"
            compile_model(model, target)
            # The mapping outlives the name: Linux keeps the file until the session closes it.
            return _Loaded(Session(target, threads=threads, libraries=libraries_of(target, search=True)))

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> list[NodeTime]:
        """Measure each node of the compiled program."""
        session = self.load(model, threads=threads).session
        session.run(inputs)
        session.profile()
        for _ in range(runs):
            session.run(inputs)
        return [
            NodeTime(t.output, f"{t.domain}::{t.op}" if t.domain else t.op, "cpu", t.runs, t.nanoseconds)
            for t in session.node_times()
        ]


class _Loaded:
    """A session with the engine protocol's view of its inputs."""

    def __init__(self, session: Any) -> None:  # noqa: ANN401 - opforge.bin.session loads the native part lazily
        self.session = session
        self.inputs = [TensorInfo(i.name, np.dtype(i.dtype), tuple(i.shape or ()), i.kind) for i in session.inputs]
        self.outputs: list[str] = [output.name for output in session.outputs]
        self.run: Callable[[Mapping[str, Any]], dict[str, Any]] = session.run


engine = OpforgeEngine()
