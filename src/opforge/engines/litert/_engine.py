"""LiteRT (TensorFlow Lite) as an engine: .tflite files as they are, ONNX models by way of our writer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any

from opforge.engines._protocol import Availability, LoadedModel, NodeTime, Traits
from opforge.engines.litert._converted import ConvertedModel
from opforge.engines.litert._dtypes import NUMBERS
from opforge.engines.litert._library import OLDEST, too_old
from opforge.engines.litert._session import Session
from opforge.schema import DType

__all__ = ["LiteRt"]


class LiteRt:
    """Runs models in LiteRT on the CPU, nodes of ours by our kernels."""

    name = "litert"

    def availability(self) -> Availability:
        """Say whether the package is installed, and new enough."""
        if util.find_spec("ai_edge_litert") is None:
            return Availability(False, reason="the package is not installed", hint="pip install 'opforge[litert]'")
        version = metadata.version("ai-edge-litert")
        if too_old(version):
            oldest = ".".join(map(str, OLDEST))
            return Availability(
                False,
                version=version,
                reason=f"version {version} is too old, {oldest} is needed",
                hint="pip install --upgrade ai-edge-litert",
            )
        return Availability(True, version=version)

    def traits(self) -> Traits:
        """The CPU; tensors without elements, and outputs whose size depends on data, LiteRT has none."""
        dtypes = tuple(DType.parse(name).long_name for name in NUMBERS)
        return Traits(("cpu",), dtypes, True, ("kernels",), (".tflite", ".onnx"))

    def prepare(self) -> None:
        """Load the library."""
        import_module("opforge.engines.litert._library").library()

    def load(self, model: Path, *, threads: int | None = None) -> LoadedModel:
        """Open a session.

        Raises:
            MissingOperatorError: a custom node has no registered operator.
            ArgumentError: nodes do not fit their operators.
            UnsupportedError: LiteRT refuses the model, or it cannot be written for it.
        """
        if Path(model).suffix == ".onnx":
            return ConvertedModel(Path(model), threads)
        return Session(Path(model), threads=threads)

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> list[NodeTime]:
        """Read what LiteRT's profiler recorded."""
        if Path(model).suffix == ".onnx":
            return ConvertedModel(Path(model), threads, profile=True).profile(inputs, runs)
        with Session(Path(model), threads=threads, profile=True) as session:
            return session.profile(inputs, runs)
