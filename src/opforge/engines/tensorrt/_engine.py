"""The TensorRT engine: ONNX models are built on the way, engine files are run as they are."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from opforge.build.cuda_driver import Driver, no_gpu_reason
from opforge.engines._inputs import array_of, check_names
from opforge.engines._protocol import Array, Availability, NodeTime, TensorInfo, Traits, Written
from opforge.engines.tensorrt import _failures, _modules
from opforge.engines.tensorrt._names import plugin_dtype
from opforge.engines.tensorrt._prepare import Route
from opforge.errors import ArgumentError, CorruptFileError, UnsupportedError

__all__ = ["Loaded", "TensorRt", "load_engine"]

_DTYPES: Final = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
_SUFFIXES: Final = (".engine", ".plan", ".trt")


class TensorRt:
    """Builds and runs engines; versions 10.0 and newer.

    Args:
        name: of the engine.
        route: how nodes of ours run; see `opforge.tensorrt.prepare`.
    """

    def __init__(self, name: str, *, route: Route) -> None:
        self.name = name
        self.writes = ".engine"
        self._route: Route = route

    def availability(self) -> Availability:
        """Say whether the package is installed and new enough, and whether there is a GPU."""
        found = _modules.version()
        if found is None:
            return Availability(False, reason="the package tensorrt is not installed", hint=_modules.HINT)
        if found and _modules.version_numbers(found) < _modules.OLDEST:
            oldest = ".".join(map(str, _modules.OLDEST))
            reason = f"version {found} is too old, {oldest} is needed"
            return Availability(False, version=found, reason=reason, hint="pip install --upgrade tensorrt")
        reason = no_gpu_reason()
        if reason:
            return Availability(
                False, version=found, reason=f"no GPU: {reason}", hint="TensorRT runs on NVIDIA's GPUs only"
            )
        return Availability(True, version=found)

    def traits(self) -> Traits:
        """TensorRT has no float64; sizes are open within the profiles that an engine was built with."""
        operators = ("bodies", "kernels") if self._route == "auto" else ("kernels",)
        return Traits(("cuda",), _DTYPES, True, operators, (".onnx", *_SUFFIXES))

    def prepare(self) -> None:
        """Import the package."""
        _modules.import_tensorrt()

    def load(self, model: Path, *, threads: int | None = None) -> Loaded:
        """Build an ONNX model for this GPU, or load an engine.

        Raises:
            MissingOperatorError: a node has neither a body nor a plugin.
            UnsupportedError: TensorRT refuses the model, or there is no GPU.
            ArgumentError: inputs have open sizes; `opforge.tensorrt.build` takes profiles.
            CorruptFileError: TensorRT does not take the engine.
        """
        trt = _modules.import_tensorrt()
        if Path(model).suffix in _SUFFIXES:
            return load_engine(trt, Path(model).read_bytes(), str(model))
        from opforge.engines.tensorrt._build import build

        return load_engine(trt, build(model, route=self._route), str(model))

    def write(self, model: Path, output: Path, *, sizes: Mapping[str, int]) -> Written:
        """Build an engine of an ONNX model, for this GPU.

        Raises:
            UnsupportedError: TensorRT refuses the model.
        """
        from opforge.engines.tensorrt._build import build, sized

        build(sized(model, sizes), output, route=self._route)
        return Written((Path(output),), ("an engine serves the GPU and the version of TensorRT that built it",))

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> list[NodeTime]:
        """Read what TensorRT says of its layers; one of them may stand for many nodes."""
        loaded = self.load(model)
        loaded.run(inputs)
        samples = loaded.measure(inputs, runs)
        return [NodeTime(name, "", "cuda", len(times), sum(times), tuple(times)) for name, times in samples.items()]


def load_engine(trt: Any, data: bytes, where: str) -> Loaded:  # noqa: ANN401 - TensorRT's module
    """Load a serialised engine.

    Raises:
        CorruptFileError: TensorRT does not take it; plugins that are not registered are a reason.
    """
    from opforge.engines.tensorrt._build import Log
    from opforge.engines.tensorrt._register import register

    _failures.forget()
    log = Log(trt)
    register(trt, ())  # TensorRT asks for the creators of what the engine holds
    runtime = trt.Runtime(log.logger)
    engine = runtime.deserialize_cuda_engine(data)
    if engine is None:
        own = _failures.kept()
        if own is not None:
            raise own
        raise CorruptFileError(
            "TensorRT does not take this engine",
            where=where,
            expected=f"an engine of this GPU and of TensorRT {getattr(trt, '__version__', '')}",
            got="\n    ".join(log.lines) or "no reason is given",
            hint="of.tensorrt.register() first where it holds plugins; build again for another GPU or version",
        )
    return Loaded(trt, runtime, engine, where)


class Loaded:
    """An engine with one context, one stream and memory for its inputs and outputs; one run at a time.

    Attributes:
        inputs: the inputs in order.
        outputs: the output names in order.
    """

    def __init__(self, trt: Any, runtime: Any, engine: Any, where: str) -> None:  # noqa: ANN401
        self._trt, self._runtime, self._engine, self._where = trt, runtime, engine, where
        self._driver = Driver()
        self._driver.enter(0)
        self._stream = self._driver.stream()
        self._memory: dict[str, tuple[int, int]] = {}  # name -> address and bytes
        self._lock = threading.Lock()
        self._context = engine.create_execution_context()
        names = [engine.get_tensor_name(k) for k in range(engine.num_io_tensors)]
        taken = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        self.inputs: Sequence[TensorInfo] = [self._info(name) for name in taken]
        self.outputs: Sequence[str] = [name for name in names if name not in taken]

    def run(self, inputs: Mapping[str, Any], /) -> dict[str, Any]:
        """Copy inputs to the GPU, run, and copy the outputs back."""
        check_names(inputs, [info.name for info in self.inputs], self._where)
        arrays = {info.name: np.asarray(array_of(info, inputs[info.name]), order="C") for info in self.inputs}
        with self._lock:
            return self._run(arrays)

    def measure(self, inputs: Mapping[str, Any], runs: int) -> dict[str, list[int]]:
        """Run with TensorRT's profiler; give nanoseconds of each layer and run."""
        samples: dict[str, list[int]] = {}
        trt = self._trt

        class Profiler(trt.IProfiler):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                trt.IProfiler.__init__(self)

            def report_layer_time(self, layer_name: str, milliseconds: float) -> None:
                samples.setdefault(layer_name, []).append(round(milliseconds * 1e6))

        profiler = Profiler()
        self._context.profiler = profiler
        for _ in range(runs):
            self.run(inputs)
        return samples

    def _run(self, arrays: Mapping[str, Array]) -> dict[str, Any]:
        for name, array in arrays.items():
            if not self._context.set_input_shape(name, tuple(array.shape)):
                raise ArgumentError(
                    "the engine was not built for this shape",
                    where=f"{self._where}, input {name}",
                    expected="; ".join(self._ranges(name)) or list(self._engine.get_tensor_shape(name)),
                    got=list(array.shape),
                    hint="of.tensorrt.build takes profiles",
                )
            address = self._room(name, array.nbytes)
            self._driver.upload(address, array.ctypes.data, array.nbytes)
            self._context.set_tensor_address(name, address)
        results = {name: self._output(name) for name in self.outputs}
        for name, array in results.items():
            self._context.set_tensor_address(name, self._room(name, array.nbytes))
        self._driver.synchronize()  # copies go by the default stream, for which ours does not wait
        _failures.forget()
        if not self._context.execute_async_v3(self._stream):
            own = _failures.kept()
            raise own or UnsupportedError("TensorRT failed to run the engine", where=self._where)
        self._driver.synchronize(self._stream)
        for name, array in results.items():
            self._driver.download(array.ctypes.data, self._memory[name][0], array.nbytes)
        return results

    def _room(self, name: str, size: int) -> int:
        """Device memory of at least this size, and never none: TensorRT takes no null for an empty tensor."""
        address, held = self._memory.get(name, (0, 0))
        if not address or held < size:
            self._driver.free(address)
            self._memory[name] = (self._driver.allocate(max(size, 1)), max(size, 1))
        return self._memory[name][0]

    def _output(self, name: str) -> Array:
        shape = tuple(self._context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            raise UnsupportedError("the size of an output depends on data", where=f"{self._where}, {name}", got=shape)
        return np.empty(shape, self._info(name).dtype)

    def _ranges(self, name: str) -> list[str]:
        engine = self._engine
        three = [engine.get_tensor_profile_shape(name, k) for k in range(engine.num_optimization_profiles)]
        return [f"{list(low)} to {list(high)}" for low, _, high in three]

    def _info(self, name: str) -> TensorInfo:
        given = self._engine.get_tensor_dtype(name)
        dtype = plugin_dtype(self._trt, given)
        if dtype is None:
            raise UnsupportedError(f"type {given} is not supported here", where=f"{self._where}, {name}")
        shape = tuple(None if size < 0 else int(size) for size in self._engine.get_tensor_shape(name))
        return TensorInfo(name, dtype.numpy, shape)
