"""The OpenVINO engine on its Python API (the CPU's plugin)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines._inputs import array_of, check_names
from opforge.engines._protocol import Availability, NodeTime, TensorInfo, Traits
from opforge.engines.openvino import _adapter
from opforge.engines.openvino._operators import python_reason
from opforge.engines.openvino._origins import origins_of
from opforge.engines.openvino._session import open_model
from opforge.engines.openvino._words import run_error
from opforge.errors import UnsupportedError

if TYPE_CHECKING:
    import openvino

__all__ = ["OpenVino"]

_DTYPES = {
    "f32": "float32", "f64": "float64", "f16": "float16", "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16",
    "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64", "boolean": "bool",
}  # fmt: skip


class OpenVino:
    """Loads ONNX files and IRs; versions 2025.0 and newer.

    Args:
        name: of the engine.
        bodies: whether nodes whose function body the model carries run as that body; others run by our kernels.
    """

    def __init__(self, name: str, *, bodies: bool) -> None:
        self.name = name
        self._bodies = bodies

    def availability(self) -> Availability:
        """Say whether the package is installed and new enough, and how our kernels run in it."""
        if _adapter.openvino_folder() is None:
            return Availability(False, reason="the package is not installed", hint="pip install 'opforge[openvino]'")
        version = _adapter.version()
        if _adapter.version_numbers(version) < _adapter.OLDEST:
            oldest = ".".join(map(str, _adapter.OLDEST))
            return Availability(
                False,
                version=version,
                reason=f"version {version} is too old, {oldest} is needed",
                hint="pip install --upgrade openvino",
            )
        reason = python_reason()
        if reason is None:
            return Availability(True, version=version)
        text = f"our kernels run through Python, some 100 us a node: {reason}"
        return Availability(True, version=version, reason=text, hint="install g++ or clang++")

    def traits(self) -> Traits:
        """What its Python API passes; the CPU computes f64 in f32, and i64 in i32."""
        operators = ("bodies", "kernels") if self._bodies else ("kernels",)
        return Traits(("cpu",), tuple(_DTYPES.values()), True, operators, (".onnx", ".xml"), ("f64",))

    def prepare(self) -> None:
        """Import the package."""
        import_module("openvino")

    def load(self, model: Path, *, threads: int | None = None) -> _Loaded:
        """Compile a model for the CPU.

        Raises:
            MissingOperatorError: a node has neither a registered operator nor a body.
            ArgumentError: nodes do not fit their operators.
            UnsupportedError: OpenVINO refuses the model.
        """
        return self._open(model, threads)

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> list[NodeTime]:
        """Read what OpenVINO says of its nodes; its unit is the microsecond.

        It keeps the mean of all runs, the first of which compiles and takes some hundred times as long: that one is
        taken out again, and every sample of a node is the mean of the others.
        """
        loaded = self._open(model, threads, measure=True)
        origins = origins_of(loaded.compiled, Path(model))
        loaded.run(inputs)
        first = {name: mean for name, _, mean in _means(loaded.request)}
        for _ in range(runs):
            loaded.run(inputs)
        rows = []
        for name, kind, mean in _means(loaded.request):
            later = mean if name not in first else max(0.0, ((runs + 1) * mean - first[name]) / runs)
            times = (round(later),) * runs
            rows.append(NodeTime(name, kind, "cpu", runs, sum(times), times, origins.get(name, ())))
        return rows

    def _open(self, model: Path, threads: int | None, measure: bool = False) -> _Loaded:
        # The default precision of some processors is bf16, which no comparison would stand.
        config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if measure:
            config["PERF_COUNT"] = True
        if threads is not None:
            config["INFERENCE_NUM_THREADS"] = threads
        return _Loaded(open_model(Path(model), config=config, bodies=self._bodies), _file_names(Path(model)))


def _means(request: openvino.InferRequest) -> Iterator[tuple[str, str, float]]:
    """Give the name and the kind of each node that ran, and the mean of its times in nanoseconds."""
    for row in request.get_profiling_info():
        if str(row.status).rpartition(".")[2] == "EXECUTED":
            yield row.node_name, row.node_type, row.real_time.total_seconds() * 1e9


def _file_names(path: Path) -> set[str]:
    """Names of an ONNX file's inputs and outputs; OpenVINO gives a tensor the names of all that it was merged with."""
    if path.suffix == ".xml":
        return set()
    from opforge.onnx._read import read_model

    graph = read_model(path, weights=False).graph
    return {item.name for item in (*graph.input, *graph.output)}


class _Loaded:
    """A compiled model with a request for each thread that runs it, and the names of its inputs and outputs."""

    def __init__(self, compiled: openvino.CompiledModel, names: set[str]) -> None:
        self.compiled = compiled
        self._requests = threading.local()
        self.inputs = [_info(item, names) for item in compiled.inputs]
        self.outputs = [_name(item, names) for item in compiled.outputs]

    @property
    def request(self) -> openvino.InferRequest:
        """The calling thread's: a request holds the tensors of one run at a time."""
        found: openvino.InferRequest | None = getattr(self._requests, "own", None)
        if found is None:
            found = self._requests.own = self.compiled.create_infer_request()
        return found

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        check_names(inputs, [info.name for info in self.inputs], "openvino")
        # OpenVINO would convert another dtype, or read it as it lies.
        arrays = [array_of(info, inputs[info.name]) for info in self.inputs]
        request = self.request
        try:
            # Not infer(): with one thread OpenVINO loses the error of a run that fails in it.
            request.start_async({k: np.asarray(array, order="C") for k, array in enumerate(arrays)})
            request.wait()
        except Exception as problem:
            raise run_error(problem, "openvino") from problem
        return {name: request.get_output_tensor(k).data.copy() for k, name in enumerate(self.outputs)}


def _name(port: Any, names: set[str]) -> str:  # noqa: ANN401 - openvino.ConstOutput
    own = port.get_names()
    found = sorted(own & names) or sorted(own)
    return found[0] if found else str(port.get_node().get_friendly_name())


def _info(port: Any, names: set[str]) -> TensorInfo:  # noqa: ANN401 - openvino.ConstOutput
    name, kind = _name(port, names), port.get_element_type().get_type_name()
    if kind not in _DTYPES:
        raise UnsupportedError(f"input type {kind} is not supported here", where=name)
    shape = port.get_partial_shape()
    sizes: tuple[int | str | None, ...] = ()
    if not shape.rank.is_dynamic:
        sizes = tuple(None if size.is_dynamic else size.get_length() for size in shape)
    return TensorInfo(name, np.dtype(_DTYPES[kind]), sizes)
