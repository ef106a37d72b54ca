"""The ONNX Runtime engine on its Python API (CPU execution provider)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from importlib import import_module, metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines._protocol import Availability, NodeTime, TensorInfo, Traits
from opforge.engines.onnxruntime._origins import origins_of
from opforge.engines.onnxruntime._provider import SINCE
from opforge.engines.onnxruntime._session import open_session
from opforge.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["OnnxRuntime", "read_profile"]

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(int16)": "int16",
    "tensor(uint16)": "uint16",
    "tensor(int32)": "int32",
    "tensor(uint32)": "uint32",
    "tensor(int64)": "int64",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
}


OLDEST = (1, 20)
"""Oldest version that the adapter is tested with."""

_DEVICES = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda", "CPUExecutionProvider": "cpu"}


class OnnxRuntime:
    """Loads ONNX files; versions 1.20 and newer.

    Args:
        name: of the engine.
        bodies: whether nodes whose function body the model carries run as that body; others run by our kernels.
        provider: whether our execution provider claims the nodes.
    """

    def __init__(self, name: str, *, bodies: bool, provider: bool = False) -> None:
        self.name = name
        self._bodies = bodies
        self._provider = provider

    def availability(self) -> Availability:
        """Say whether the package is installed, and new enough."""
        if util.find_spec("onnxruntime") is None:
            return Availability(False, reason="the package is not installed", hint="pip install 'opforge[onnxruntime]'")
        version = _version()
        oldest = SINCE if self._provider else OLDEST
        if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < oldest:
            text = ".".join(map(str, oldest))
            return Availability(
                False,
                version=version,
                reason=f"version {version} is too old, {text} is needed",
                hint="pip install --upgrade onnxruntime",
            )
        return Availability(True, version=version)

    def traits(self) -> Traits:
        """What its Python API passes; devices are those of the execution providers of the installed package."""
        import onnxruntime

        found = {_DEVICES[name]: None for name in onnxruntime.get_available_providers() if name in _DEVICES}
        return Traits(
            tuple(found), tuple(_DTYPES.values()), True, ("bodies", "kernels") if self._bodies else ("kernels",)
        )

    def prepare(self) -> None:
        """Import the package."""
        import_module("onnxruntime")

    def load(self, model: Path, *, threads: int | None = None) -> _Loaded:
        """Create a session.

        Raises:
            MissingOperatorError: a node has neither a registered operator nor a body.
            ArgumentError: nodes do not fit their operators.
            UnsupportedError: ONNX Runtime refuses the model.
        """
        return _Loaded(self._session(model, threads))

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> list[NodeTime]:
        """Read what ONNX Runtime's own profiler writes; its unit is the microsecond.

        The model as ONNX Runtime has optimised it tells which nodes of the model each of its nodes stands for; one with
        nodes of an execution provider cannot be written, so there nothing tells.
        """
        with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
            optimised = Path(folder) / "optimised.onnx"
            session = self._measured(model, threads, f"{folder}/profile", "" if self._provider else str(optimised))
            loaded = _Loaded(session)
            for _ in range(runs + 1):
                loaded.run(inputs)
            origins = origins_of(model, optimised) if optimised.exists() else {}
            return read_profile(Path(session.end_profiling()), runs, origins)

    def _measured(self, model: Path, threads: int | None, profile: str, optimised: str) -> onnxruntime.InferenceSession:
        try:
            return self._session(model, threads, profile, optimised)
        except UnsupportedError:
            if not optimised:
                raise
            return self._session(model, threads, profile)  # a model of 2 GiB runs, and cannot be written

    def _session(
        self, model: Path, threads: int | None, profile: str = "", optimised: str = ""
    ) -> onnxruntime.InferenceSession:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        if profile:
            options.enable_profiling = True
            options.profile_file_prefix = profile
        if optimised:
            options.optimized_model_filepath = optimised
        options.log_severity_level = 4  # what goes wrong is raised
        if threads is not None:
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
        return open_session(model, options, bodies=self._bodies, provider=self._provider)


def _version() -> str:
    return metadata.version("onnxruntime")


def read_profile(path: Path, runs: int, origins: Mapping[str, tuple[str, ...]] | None = None) -> list[NodeTime]:
    """Read a profile of ``runs`` runs after one that does not count.

    Args:
        path: what ONNX Runtime wrote.
        runs: how many runs count.
        origins: names of the model's nodes, for the names of those that ran.
    """
    events: dict[str, list[dict[str, Any]]] = {}
    for event in json.loads(path.read_text(encoding="utf-8")):
        name = event["name"]
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            events.setdefault(name.removesuffix("_kernel_time"), []).append(event)
    found = []
    for name, rows in events.items():
        counted = rows[len(rows) // (runs + 1) :]  # a node in a loop runs several times in each run
        samples = tuple(int(row["dur"]) * 1000 for row in counted)
        what = rows[-1]["args"]
        origin = (origins or {}).get(name, ())
        operator, device = what["op_name"], what.get("provider", "")
        found.append(NodeTime(name, operator, device, len(counted), sum(samples), samples, origin))
    return found


class _Loaded:
    """A session with the names of its inputs and outputs."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.outputs = [output.name for output in session.get_outputs()]
        self.inputs = [_info(item) for item in session.get_inputs()]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            values = self._session.run(None, dict(inputs))
        except Exception as problem:
            raise ArgumentError("ONNX Runtime refused these inputs", where="onnxruntime", got=str(problem)) from problem
        return {
            name: value if isinstance(value, list) or value is None else np.asarray(value)
            for name, value in zip(self.outputs, values, strict=True)
        }


def _info(item: Any) -> TensorInfo:  # noqa: ANN401 - onnxruntime.NodeArg carries no types
    held, kind = item.type, "tensor"
    if held.startswith("optional("):
        held, kind = held[len("optional(") : -1], "optional"
    if held.startswith("seq("):
        held, kind = held[len("seq(") : -1], "optional_sequence" if kind == "optional" else "sequence"
    if held not in _DTYPES:
        raise UnsupportedError(f"input type {item.type} is not supported here", where=item.name)
    shape = tuple(d if isinstance(d, int) else (d or None) for d in item.shape or ())
    return TensorInfo(item.name, np.dtype(_DTYPES[held]), shape, kind)
