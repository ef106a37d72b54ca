"""A converted model in ncnn's Python package.

ncnn passes on nothing of an error in a layer but a code, and older packages have room for ten kinds of layers in a
process. So the engine registers none: it gives ncnn the network with an Input in the place of what each of our layers
makes, asks for the blobs that such a layer reads, computes, and gives the results as inputs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opforge.engines._inputs import array_for, check_names
from opforge.engines._protocol import NodeTime, TensorInfo
from opforge.engines.ncnn._convert import Port
from opforge.engines.ncnn._custom import NO_AXES, WITHOUT_FIRST, CustomLayer
from opforge.engines.ncnn._files import Written, read_files
from opforge.engines.ncnn._net import Array, Layer, param_text
from opforge.errors import ArgumentError, InternalError, UnsupportedError

__all__ = ["EXACT", "Loaded"]

EXACT: Mapping[str, bool] = {
    "use_fp16_packed": False,
    "use_fp16_storage": False,
    "use_fp16_arithmetic": False,
    "use_bf16_packed": False,
    "use_bf16_storage": False,
}
"""Options of ncnn: it would round weights and tensors to 16 bits by itself where the processor is faster then."""


class Loaded:
    """A network with its weights.

    Attributes:
        inputs: as the model had them.
        outputs: their names.

    Args:
        path: of the ``.param``.
        threads: None = ncnn's choice.
        name: what messages call the model.
        options: of ncnn; others are as in ``EXACT``.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int | None = None,
        name: str | None = None,
        options: Mapping[str, bool] | None = None,
    ) -> None:
        import ncnn

        self._name = name or str(path)
        self._files = read_files(path)
        self._custom = self._files.custom()
        self._net = ncnn.Net()
        self._net.opt.use_vulkan_compute = False
        for option, value in {**EXACT, **(options or {})}.items():
            if hasattr(self._net.opt, option):
                setattr(self._net.opt, option, value)
        if threads is not None:
            self._net.opt.num_threads = threads
        if self._net.load_param_mem(param_text(_served(self._files, self._custom))) != 0:
            raise UnsupportedError(
                "ncnn refuses the network",
                where=self._name,
                got=f"one of {', '.join(sorted({layer.kind for layer in self._files.layers}))} is not in this version",
                hint="pip install --upgrade ncnn",
            )
        if self._net.load_model(str(self._files.weights)) != 0:
            raise UnsupportedError("ncnn refuses the weights", where=self._name, got=str(self._files.weights))
        readers = {name: layer for layer in self._files.layers for name in layer.inputs}
        # What no layer of ncnn reads stays an array: nothing is copied, and it may be empty.
        self._kept = {
            name
            for layer in self._files.layers
            if layer.kind == "Input" or layer.name in self._custom
            for name in layer.outputs
            if name not in readers or readers[name].name in self._custom
        }
        self.inputs = [TensorInfo(p.name, np.dtype(p.dtype), p.shape) for p in self._files.inputs]
        self.outputs = [port.name for port in self._files.outputs]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run once."""
        run = self._begin(inputs)
        for layer in self._files.layers:
            if layer.name in self._custom:
                run.compute(self._custom[layer.name], layer)
        return {port.name: _leaving(port, run.array(port.blob)) for port in self._files.outputs}

    def measure(self, inputs: Mapping[str, Any], runs: int) -> list[NodeTime]:
        """Run with a clock around each layer."""
        spent = dict.fromkeys((layer.name for layer in self._files.layers if layer.kind != "Input"), 0)
        for _ in range(runs):
            run = self._begin(inputs, remember=True)
            for layer in self._files.layers:
                if layer.kind == "Input":
                    continue
                began = time.perf_counter_ns()
                if layer.name in self._custom:
                    run.compute(self._custom[layer.name], layer)
                else:
                    run.ask(layer.outputs[0])
                spent[layer.name] += time.perf_counter_ns() - began
        kinds = {layer.name: layer.kind for layer in self._files.layers}
        kinds |= {name: layer.operator.qualified_name for name, layer in self._custom.items()}
        return [NodeTime(name, kinds[name], "cpu", runs, nanoseconds) for name, nanoseconds in spent.items()]

    def _begin(self, inputs: Mapping[str, Any], *, remember: bool = False) -> _Run:
        """Check and give the inputs."""
        check_names(inputs, [info.name for info in self.inputs], "ncnn")
        run = _Run(self._net.create_extractor(), self._kept, self._name)
        if remember:
            run.extractor.set_light_mode(False)
        for info, port in zip(self.inputs, self._files.inputs, strict=True):
            run.give(port.blob, _entering(port, array_for(info, inputs[info.name])))
        return run


class _Run:
    """One run: ncnn's extractor, and the arrays that it need not see."""

    def __init__(self, extractor: Any, kept: set[str], name: str) -> None:  # noqa: ANN401 - ncnn has no types
        self.extractor = extractor
        self._keep = kept
        self._name = name
        self._arrays: dict[str, Array] = {}
        self._mats: list[Any] = []  # ncnn refers to them

    def give(self, blob: str, array: Array) -> None:
        """Let an array be what a blob holds."""
        if blob in self._keep:
            self._arrays[blob] = array
            return
        if array.size == 0:
            raise UnsupportedError("ncnn has no empty tensors", where=self._name, got=f"{blob}: {list(array.shape)}")
        self._mats.append(_mat(array))
        if self.extractor.input(blob, self._mats[-1]) != 0:  # it would go on with nothing
            raise InternalError("ncnn does not know a blob", where=self._name, got=blob)

    def array(self, blob: str) -> Array:
        """Return what a blob holds; ncnn computes it now."""
        if blob in self._arrays:
            return self._arrays[blob]
        code, mat = self.extractor.extract(blob)
        if code != 0:
            raise self._failed(blob)
        return np.array(mat)

    def ask(self, blob: str) -> None:
        """Let ncnn compute a blob and keep it as it is, without conversion."""
        import ncnn

        if self.extractor.extract(blob, ncnn.Mat(), 1) != 0:
            raise self._failed(blob)

    def compute(self, custom: CustomLayer, layer: Layer) -> None:
        """Compute a layer of ours."""
        arrays = custom.compute([self.array(name) for name in layer.inputs], layer.name)
        for name, array in zip(layer.outputs, arrays, strict=True):
            self.give(name, array)

    def _failed(self, blob: str) -> ArgumentError:
        return ArgumentError(
            "ncnn cannot compute a blob of these inputs",
            where=self._name,
            got=blob,
            hint="sizes do not fit, or there is no memory for them",
        )


def _served(files: Written, custom: Mapping[str, CustomLayer]) -> list[Layer]:
    """Put an Input in the place of each output of a layer of ours."""
    layers: list[Layer] = []
    for layer in files.layers:
        if layer.name in custom:
            layers += [Layer("Input", f"{layer.name}__{k}", [], [name]) for k, name in enumerate(layer.outputs)]
        else:
            layers.append(layer)
    return layers


def _entering(port: Port, array: Array) -> Array:
    """Bring an input to the form of its blob."""
    if array.dtype.kind in "iu":
        narrow = array.astype(np.int32)
        if not np.array_equal(narrow, array):
            raise ArgumentError(
                "a number does not fit 32 bits, and ncnn has no wider integers", where=f"input {port.name!r}"
            )
        array = narrow
    shape = array.shape[1:] if port.form == WITHOUT_FIRST else array.shape or (1,)
    return np.ascontiguousarray(array).reshape(shape)


def _leaving(port: Port, array: Array) -> Array:
    """Bring what a blob holds to the dtype and form of the output."""
    dtype = np.dtype(port.dtype)
    if dtype.kind in "iu":
        array = array.view(np.int32).astype(dtype)
    return array[None] if port.form == WITHOUT_FIRST else array.reshape(()) if port.form == NO_AXES else array


def _mat(array: Array) -> Any:  # noqa: ANN401 - ncnn has no types
    """Copy to a tensor of ncnn, whose channels begin at multiples of 16 bytes."""
    import ncnn

    return ncnn.Mat(array).clone()
