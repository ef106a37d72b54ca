"""Sessions: one compiled model of LiteRT on NumPy arrays, with our kernels for its custom nodes."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_void_p
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from opforge._quiet import quiet
from opforge.engines._inputs import array_for, check_names
from opforge.engines._protocol import Array, NodeTime, TensorInfo
from opforge.engines.litert._adapter import DEFINED, Kernels, define
from opforge.engines.litert._dtypes import NUMBERS
from opforge.engines.litert._library import MAX_RANK, Layout, LiteRtLibrary, ProfiledEvent, TensorType, library
from opforge.engines.litert._model import TfliteModel, aligned_copy, aligned_memory
from opforge.errors import ArgumentError, CorruptFileError, OpforgeError, UnsupportedError
from opforge.schema import DType

__all__ = ["Session"]

_CPU: Final = 1
_BUFFERED: Final = 2  # errors are collected for whoever asks
_MARKS: Final = (0xA5, 0x5A)
"""What memory of outputs holds before a run that is to show whether LiteRT writes it."""


class Session:
    """A .tflite model ready to run on the CPU. Threads may share one; its runs go one after another."""

    def __init__(
        self, model: str | Path | bytes | TfliteModel, *, threads: int | None = None, profile: bool = False
    ) -> None:
        """Compile the model, with our kernels for the operators that it names.

        Args:
            model: file of the model, or its bytes.
            threads: of LiteRT's own kernels and of ours; None = LiteRT's choice, and opforge's whole pool.
            profile: whether `profile` may be called.

        Raises:
            ModuleNotFoundError: LiteRT is not installed.
            UnsupportedError: LiteRT is too old, or cannot run the model.
            MissingOperatorError: custom nodes whose operators are not registered; all are listed.
            CorruptFileError: the file is damaged.
            ArgumentError: there is no such file, or nodes do not fit their operators.
        """
        self._litert = library()
        given = model if isinstance(model, TfliteModel) else TfliteModel(model)
        define(given.operators(DEFINED).values())
        self._model = given.prepared()
        self.inputs: list[TensorInfo] = given.inputs
        self.outputs: list[str] = given.outputs
        self._output_infos = given.output_infos
        self._where = given.where
        self._lock = threading.Lock()
        self._shapes: list[tuple[int, ...] | None] = [None] * len(self.inputs)
        self._memory: list[np.ndarray[Any, np.dtype[np.uint8]] | None] = [None] * len(self.inputs)
        self._proven = False  # whether outputs were seen to be written since the last change of shapes
        self._layouts: list[tuple[int, ...]] = []
        self._handles: list[tuple[str, c_void_p]] = []
        self._kernels = Kernels(self._model.codes, threads or 0)
        try:
            self._compile(threads, profile)
        except BaseException:
            self.close()
            raise

    def _compile(self, threads: int | None, profile: bool) -> None:
        litert = self._litert
        environment = _environment(litert)
        if self._model.path is not None:
            made: tuple[object, ...] = (environment, str(self._model.path).encode())
            name = "CreateModelFromFile"
        else:
            self._bytes = aligned_copy(self._model.data)
            made, name = (environment, self._bytes.ctypes.data, len(self._model.data)), "CreateModelFromBuffer"
        try:
            model = litert.make(name, *made)
        except UnsupportedError as problem:
            raise CorruptFileError("LiteRT cannot read the model", where=self._where, got=problem.got) from None
        self._handles.append(("DestroyModel", model))
        options = litert.make("CreateOptions")
        try:
            litert.call("SetOptionsHardwareAccelerators", options, _CPU)
            runtime = f"error_reporter_mode = {_BUFFERED}\nenable_profiling = {str(profile).lower()}\n"
            _add_text(litert, options, "runtime_options_string", runtime)
            if threads is not None:
                _add_text(litert, options, "xnnpack", f"num_threads = {threads}\n")
            self._kernels.add(options)
            try:
                with quiet():  # its XNNPACK says that it is there, and knows no setting
                    self._compiled = litert.make("CreateCompiledModel", environment, model, options)
            except UnsupportedError as problem:
                raise self._kernels.failure() or UnsupportedError(
                    "LiteRT cannot compile the model", where=self._where, got=problem.got
                ) from None
        finally:
            litert.DestroyOptions(options)
        self._handles.append(("DestroyCompiledModel", self._compiled))
        failed = self._kernels.failure()  # LiteRT goes on when a kernel refuses the attributes of its node
        if failed is not None:
            raise failed

    # ---- running

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, inputs by name to outputs by name."""
        arrays = self._checked(inputs)
        with self._lock:
            if not self._handles:
                raise ArgumentError("the session is closed", where=self._where)
            self._resize(arrays)
            return self._invoke(arrays)

    def _checked(self, inputs: Mapping[str, Any]) -> list[Array]:
        check_names(inputs, [info.name for info in self.inputs], self._where)
        arrays = []
        for info in self.inputs:
            array = array_for(info, inputs[info.name])
            if array.size == 0 or array.ndim > MAX_RANK:
                raise UnsupportedError(
                    "LiteRT takes no such tensor",
                    where=f"input {info.name}",
                    expected=f"at least one element, and at most {MAX_RANK} dimensions",
                    got=f"shape {list(array.shape)}",
                )
            arrays.append(array)
        return arrays

    def _resize(self, arrays: Sequence[Array]) -> None:
        """Tell LiteRT the shapes of this run where they differ from the last one's, and learn those of the outputs."""
        litert = self._litert
        changed = [k for k, array in enumerate(arrays) if self._shapes[k] != array.shape]
        if not changed and self._layouts:
            return
        self._layouts = []
        self._proven = False
        for k in changed:
            self._shapes[k] = None
            shape = arrays[k].shape
            if any(d is None for d in self.inputs[k].shape):
                dims = (c_int * len(shape))(*shape)
                status = litert.CompiledModelResizeInputTensor(self._compiled, 0, k, dims, len(shape))
                if status:
                    raise self._failed("CompiledModelResizeInputTensor", status)
            self._memory[k] = aligned_memory(arrays[k].nbytes)
            self._shapes[k] = shape
        layouts = (Layout * len(self.outputs))()
        status = litert.GetCompiledModelOutputTensorLayouts(self._compiled, 0, len(self.outputs), layouts, True)
        problem = self._kernels.failure()
        if problem is not None or status:
            self._shapes = [None] * len(self.inputs)
            raise problem or self._failed("GetCompiledModelOutputTensorLayouts", status)
        self._layouts = [layout.shape for layout in layouts]

    def _invoke(self, arrays: Sequence[Array]) -> dict[str, Array]:
        sizes = [
            _size(shape) * info.dtype.itemsize for shape, info in zip(self._layouts, self._output_infos, strict=True)
        ]
        memory = self._computed(arrays, sizes) if self._proven else self._seen_computed(arrays, sizes)
        self._proven = True
        return {
            info.name: place[:size].view(info.dtype).reshape(shape)
            for info, shape, size, place in zip(self._output_infos, self._layouts, sizes, memory, strict=True)
        }

    def _computed(self, arrays: Sequence[Array], sizes: Sequence[int], mark: int | None = None) -> list[Any]:
        """Run into new memory, which holds a mark before."""
        memory = [aligned_memory(size) for size in sizes]
        for place in memory if mark is not None else ():
            place.fill(mark)
        self._once(arrays, memory, sizes)
        return memory

    def _seen_computed(self, arrays: Sequence[Array], sizes: Sequence[int]) -> list[Any]:
        """Run, and see whether LiteRT writes all outputs.

        One whose size it learns only while it runs goes to memory of its own, and the run counts as good.
        """
        memory = self._computed(arrays, sizes, _MARKS[0])
        names = [i.name for place, i in zip(memory, self._output_infos, strict=True) if (place == _MARKS[0]).all()]
        if not names:
            return memory
        try:
            again = self._computed(arrays, sizes, _MARKS[1])
            if not any((place == _MARKS[1]).all() for place in again):
                return again
        except UnsupportedError:
            pass
        self._shapes = [None] * len(self.inputs)
        raise UnsupportedError(
            "LiteRT gives no output whose size it learns only while it runs",
            where=f"{self._where}, output {names[0]}",
            hint=_KNOWN,
        )

    def _once(self, arrays: Sequence[Array], memory: Sequence[Any], sizes: Sequence[int]) -> None:
        litert, buffers = self._litert, []
        try:
            for array, place, info in zip(arrays, self._memory, self.inputs, strict=True):
                assert place is not None
                place[: array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
                buffers.append(self._buffer(info, array.shape, place, array.nbytes))
            for shape, place, size, info in zip(self._layouts, memory, sizes, self._output_infos, strict=True):
                buffers.append(self._buffer(info, shape, place, size))
            split, total = len(arrays), len(buffers)
            given, made = buffers[:split], buffers[split:]
            status = litert.RunCompiledModel(
                self._compiled, 0, split, (c_void_p * split)(*given), total - split, (c_void_p * len(made))(*made)
            )
        finally:
            for buffer in buffers:
                litert.DestroyTensorBuffer(buffer)
        problem = self._kernels.failure()
        if problem is not None or status:
            raise problem or self._failed("RunCompiledModel", status)

    def _buffer(self, info: TensorInfo, shape: tuple[int, ...], place: Any, size: int) -> c_void_p:  # noqa: ANN401
        if size == 0:
            raise UnsupportedError(
                "LiteRT has no tensors without elements", where=info.name, got=f"shape {list(shape)}"
            )
        kind = TensorType(NUMBERS[DType.parse(info.dtype).name], Layout.of(shape))
        return self._litert.make("CreateTensorBufferFromHostMemory", byref(kind), place.ctypes.data, size, None)

    def _failed(self, name: str, status: int) -> OpforgeError:
        """Make the error of a status, with what LiteRT reported meanwhile."""
        litert, text = self._litert, c_void_p()
        words = str(litert.failure(name, status).got)
        if not litert.CompiledModelGetErrorMessages(self._compiled, byref(text)) and text.value:
            said = ctypes.cast(text, c_char_p).value or b""
            words += ": " + said.decode("utf-8", "replace").strip()
            _libc().free(text)
        litert.CompiledModelClearErrors(self._compiled)
        hint = None
        if "allocation is too small" in words:
            hint = _KNOWN
        elif "failed to invoke" in words and self._model.codes:
            hint = f"LiteRT passes no tensor to a custom node whose size it learns only while it runs: {_KNOWN}"
        return UnsupportedError("LiteRT cannot run the model", where=self._where, got=words, hint=hint)

    # ---- profiling

    def profile(self, inputs: Mapping[str, Any], runs: int) -> list[NodeTime]:
        """Run after one run that is not counted, and add up the time of each node; the unit is the microsecond.

        Nodes that one delegate runs together are those of the delegate.
        """
        litert = self._litert
        self.run(inputs)
        profiler = litert.make("CompiledModelGetProfiler", self._compiled)
        times: dict[tuple[str, int, int, int], list[int]] = {}
        try:
            for _ in range(runs):
                litert.call("ResetProfiler", profiler)
                litert.call("StartProfiler", profiler)
                self.run(inputs)
                seen: Counter[tuple[str, int, int]] = Counter()  # a delegate gives nodes of one kind one number
                for event in _events(litert, profiler):
                    if event.kind in _NODE_EVENTS:
                        tag = (event.tag or b"").decode("utf-8", "replace")
                        own = self._model.node_kind(int(event.node)) if event.kind == _OPERATOR else None
                        key = (own or tag, int(event.kind), int(event.node))
                        times.setdefault((*key, seen[key]), []).append(int(event.elapsed) * 1000)
                        seen[key] += 1
        finally:
            litert.call("StopProfiler", profiler)
        delegated = any(kind != _OPERATOR for _, kind, _, _ in times)
        return [
            NodeTime(f"{tag}:{node or nth}", tag, "cpu" if kind == _OPERATOR else "xnnpack", len(rows), sum(rows))
            for (tag, kind, node, nth), rows in times.items()
            if not (delegated and kind == _OPERATOR and "Delegate" in tag)
        ]

    # ---- end

    def close(self) -> None:
        """Free what LiteRT holds; a closed session runs no more."""
        with self._lock:
            while self._handles:
                name, handle = self._handles.pop()
                getattr(self._litert, name)(handle)
            self._kernels.close()

    def __enter__(self) -> Session:
        """Return the session."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __del__(self) -> None:
        """Close a session that is forgotten."""
        if hasattr(self, "_kernels"):
            self.close()


_KNOWN: Final = "write the model for known sizes, opforge.litert.convert(model, path, shapes={...})"
_OPERATOR: Final = 2
_NODE_EVENTS: Final = (_OPERATOR, 4, 8)  # of the interpreter, and of a delegate in its two forms


def _events(litert: LiteRtLibrary, profiler: c_void_p) -> list[ProfiledEvent]:
    count = c_int()
    litert.call("GetNumProfilerEvents", profiler, byref(count))
    events = (ProfiledEvent * count.value)()
    if count.value:
        litert.call("GetProfilerEvents", profiler, count, events)
    return list(events)


def _size(shape: Sequence[int]) -> int:
    size = 1
    for dim in shape:
        size *= dim
    return size


@functools.cache
def _libc() -> ctypes.CDLL:
    found = ctypes.CDLL(None)
    found.strdup.argtypes, found.strdup.restype = [c_char_p], c_void_p
    found.free.argtypes, found.free.restype = [c_void_p], None
    return found


@functools.cache
def _environment(litert: LiteRtLibrary) -> c_void_p:
    """Return the environment of this process; it is never freed, since sessions may end in any order."""
    return litert.environment()


def _add_text(litert: LiteRtLibrary, options: c_void_p, name: str, text: str) -> None:
    """Add options that LiteRT takes as text in TOML's form, and frees."""
    libc = _libc()
    release = ctypes.cast(libc.free, c_void_p)
    made = litert.make("CreateOpaqueOptions", name.encode(), libc.strdup(text.encode()), release)
    litert.call("AddOpaqueOptions", options, made)
