"""The ncnn engine: ONNX models are converted on the way, .param files are run as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib import import_module, metadata, util
from pathlib import Path
from typing import Any

from opforge.engines._protocol import Availability, NodeTime, Traits, Written

__all__ = ["OLDEST", "Ncnn"]

OLDEST = 20260114
"""Day of the oldest version that the tests ran with; before, a kind of layer that is not registered is a crash."""


class Ncnn:
    """Runs on ncnn's CPU layers, in float32; nodes of ours by our kernels."""

    name = "ncnn"
    writes = ".ncnn.param"

    def availability(self) -> Availability:
        """Say whether the package is installed."""
        if util.find_spec("ncnn") is None:
            return Availability(False, reason="the package is not installed", hint="pip install 'opforge[ncnn]'")
        version = metadata.version("ncnn")
        day = version.rpartition(".")[2]
        if not day.isdigit() or int(day) < OLDEST:
            reason = f"version {version} is too old, 1.0.{OLDEST} is needed"
            return Availability(False, version=version, reason=reason, hint="pip install --upgrade ncnn")
        return Availability(True, version=version)

    def traits(self) -> Traits:
        """Float32, and integers that index rows or go to operators of ours."""
        return Traits(("cpu",), ("float32", "int32", "int64"), True, ("kernels",), (".onnx", ".param"))

    def prepare(self) -> None:
        """Import the package."""
        import_module("ncnn")

    def load(self, model: Path, *, threads: int | None = None) -> Any:  # noqa: ANN401 - the type needs ncnn's module
        """Load a converted model, or convert an ONNX model and load that.

        Raises:
            UnsupportedError: nodes that ncnn has no layer for; all are listed.
            MissingOperatorError: custom nodes that nothing defines.
            CorruptFileError: a file of a converted model is missing, cut off or damaged.
        """
        from opforge.engines.ncnn._run import Loaded

        if Path(model).suffix == ".param":
            return Loaded(Path(model), threads=threads)
        from opforge.engines.ncnn._convert import convert
        from opforge.engines.ncnn._files import write_files

        with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
            target = Path(folder) / "model.param"
            write_files(convert(model), target)
            return Loaded(target, threads=threads, name=str(model))

    def write(self, model: Path, output: Path, *, sizes: Mapping[str, int]) -> Written:
        """Convert an ONNX model to a ``.param`` with a ``.bin`` and a ``.json`` beside it; needs no ncnn."""
        from opforge.engines.ncnn._convert import convert
        from opforge.engines.ncnn._files import write_files

        network = convert(model, sizes=sizes)
        return Written(tuple(write_files(network, Path(output))), tuple(network.notes))

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> list[NodeTime]:
        """Measure each layer: blobs are asked for one after the other, and the time that each takes is its layer's."""
        loaded = self.load(model, threads=threads)
        loaded.run(inputs)
        times: list[NodeTime] = loaded.measure(inputs, runs)
        return times
