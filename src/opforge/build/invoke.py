"""Call one kernel on NumPy arrays through ctypes. Correctness first: one thread, a few microseconds of overhead."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from opforge.build import abi
from opforge.build.library import LibraryKernel
from opforge.build.native import STATUS_ERRORS
from opforge.errors import (
    OpforgeError,
)
from opforge.schema.attributes import KINDS, AttributeValue
from opforge.schema.dtypes import DType

__all__ = ["Array", "Call", "invoke", "native_loops", "split_loops"]

Array = np.ndarray[Any, Any]

_OUT_OF_MEMORY = 4


def invoke(
    kernel: LibraryKernel,
    inputs: Sequence[Sequence[Array]],
    outputs: Sequence[Sequence[tuple[Sequence[int] | None, DType]]],
    attributes: Sequence[tuple[str, AttributeValue]],
    where: str,
) -> list[Array]:
    """Run `kernel` and return its output arrays, flat.

    Args:
        kernel: the kernel.
        inputs: per parameter its arrays (none = absent); any strides, native byte order.
        outputs: per parameter the shape (None = the kernel allocates) and dtype of each array.
        attributes: kind and value of each, in the signature's order.
        where: the operator, for error messages.

    Raises:
        OpforgeError: what the kernel reports, as the class of its status.
    """
    call = Call(kernel.device_type, [dtype for group in outputs for _, dtype in group])
    strided = bool(kernel.flags & abi.KERNEL_STRIDED)
    alignment = max(1, kernel.alignment)
    in_arguments = call.arguments([[_prepare(a, strided, alignment) for a in group] for group in inputs])
    results = [
        [None if shape is None else _empty(shape, dtype, alignment) for shape, dtype in group] for group in outputs
    ]
    out_arguments = call.arguments(results)
    call.outputs = out_arguments
    context = call.context(kernel)
    values = (abi.Attribute * max(1, len(attributes)))()
    for slot, (kind, value) in zip(values, attributes, strict=False):
        call.attribute(slot, kind, value)
    run = abi.KernelFunction(kernel.run)
    try:
        status = run(ctypes.byref(context), ctypes.byref(in_arguments), ctypes.byref(out_arguments), values)
    finally:
        call.kept.clear()  # the context's callbacks refer to the call: without this all arrays wait for the collector
    if status:
        raise call.failure(status, where)
    flat: list[Array] = []
    for index, array in enumerate(array for group in results for array in group):
        made = call.allocated.get(index, array)
        if made is None:
            what = f"the kernel did not allocate output {index}, whose shape depends on data"
            raise OpforgeError(what, where=where, hint="tell the kernel's author")
        flat.append(made)
    return flat


class Call:
    """Memory and callbacks of one call; everything stays referenced until it returns.

    Args:
        device_type: of the kernel and its tensors.
        output_dtypes: one per output tensor, for those that the kernel allocates.
    """

    def __init__(self, device_type: int, output_dtypes: list[DType]) -> None:
        self.device = abi.Device(device_type, 0)  # an emulated device reads this memory too
        self.kept: list[object] = []
        self.text = ""
        self.outputs: abi.Arguments | None = None
        self.output_dtypes = output_dtypes
        self.allocated: dict[int, Array] = {}
        self.alignment = 1

    def arguments(self, groups: Sequence[Sequence[Array | None]]) -> abi.Arguments:
        """Return the arguments of arrays, by parameter; None stands for one that the kernel allocates."""
        flat = [array for group in groups for array in group]
        tensors = (abi.Tensor * max(1, len(flat)))()
        for tensor, array in zip(tensors, flat, strict=False):
            if array is not None:
                self.fill(tensor, array)
        counts = (ctypes.c_int32 * max(1, len(groups)))(*(len(group) for group in groups))
        self.kept += [flat, tensors, counts]
        return abi.Arguments(tensors, counts, len(flat), len(groups))

    def fill(self, tensor: abi.Tensor, array: Array) -> None:
        """Describe an array, its address and strides too."""
        self.describe(tensor, array.shape, DType.parse(array.dtype))
        tensor.data = array.__array_interface__["data"][0] if array.size else None
        if not array.flags.c_contiguous:
            strides = (ctypes.c_int64 * max(1, array.ndim))(*(s // array.itemsize for s in array.strides))
            tensor.strides = strides
            self.kept.append(strides)
        self.kept.append(array)

    def describe(self, tensor: abi.Tensor, shape: Sequence[int], dtype: DType) -> None:
        """Say what a dense tensor is; its address is set by whoever knows it."""
        sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        tensor.device = self.device
        tensor.ndim = len(shape)
        tensor.dtype = abi.DType(dtype.code, dtype.bits, 1)
        tensor.shape = sizes
        self.kept.append(sizes)

    def attribute(self, slot: abi.Attribute, kind: str, value: AttributeValue) -> None:
        """Write one attribute in the ABI's form."""
        slot.kind = KINDS.index(kind) + 1
        slot.count = 1
        if isinstance(value, tuple):
            slot.count = len(value)
            self._list(slot, kind, value)
        elif isinstance(value, str):
            slot.value.s = self._string(value)
        elif kind == "float":
            slot.value.f = float(value)
        else:
            slot.value.i = int(value)

    def _list(self, slot: abi.Attribute, kind: str, value: tuple[Any, ...]) -> None:
        array: Any
        if kind == "strings":
            array = (abi.String * max(1, len(value)))(*map(self._string, value))
            slot.value.strings = array
        elif kind == "floats":
            array = (ctypes.c_double * max(1, len(value)))(*value)
            slot.value.floats = array
        else:
            array = (ctypes.c_int64 * max(1, len(value)))(*map(int, value))
            slot.value.ints = array
        self.kept.append(array)

    def _string(self, value: str) -> abi.String:
        data = value.encode("utf-8")
        self.kept.append(data)
        return abi.String(data, len(data))

    def context(self, kernel: LibraryKernel) -> abi.Context:
        """Return the context of the call."""
        self.alignment = max(1, kernel.alignment)
        context = abi.Context(size=ctypes.sizeof(abi.Context), abi=abi.ABI)
        context.device = self.device
        context.kernel_data = kernel.data or None
        context.parallel_for = abi.ParallelFor(_loop.get())
        context.scratch = abi.Scratch(self._scratch)
        context.allocate_output = abi.AllocateOutput(self._allocate_output)
        context.error = abi.Error(self._error)
        context.log = abi.Log(_log)
        self.kept.append(context)
        return context

    def _scratch(self, context: int, size: int, alignment: int) -> int | None:
        try:
            memory = np.empty(size + alignment, np.uint8)
        except MemoryError:
            return None
        self.kept.append(memory)
        address = int(memory.__array_interface__["data"][0])
        return (address + alignment - 1) // alignment * alignment

    def _allocate_output(self, context: int, index: int, shape: Any, ndim: int) -> int:  # noqa: ANN401 - a pointer
        if self.outputs is None or not 0 <= index < len(self.output_dtypes):
            return 1
        try:
            array = _empty([shape[k] for k in range(ndim)], self.output_dtypes[index], self.alignment)
        except (MemoryError, ValueError):
            return 4
        self.allocated[index] = array
        self.fill(self.outputs.tensors[index], array)
        return 0

    def _error(self, context: int, code: int, text: bytes | None) -> int:
        self.text = (text or b"").decode("utf-8", "replace")
        return code

    def failure(self, status: int, where: str) -> OpforgeError:
        """Return the error of a call that ended with a status."""
        text = self.text or f"the kernel failed with status {status}"
        if status in STATUS_ERRORS:
            return STATUS_ERRORS[status](text, where=where)
        if status == _OUT_OF_MEMORY:
            return OpforgeError(self.text or "out of memory", where=where)
        return OpforgeError(text, where=where, hint="tell the kernel's author")


def _serial(context: int, n: int, grain: int, body: int, user: int) -> int:
    abi.Range(body)(user, 0, n)
    return 0


def _empty(shape: Sequence[int], dtype: DType, alignment: int) -> Array:
    array = _aligned(shape, np.dtype(dtype.numpy), alignment)
    fill = _fill.get()
    if fill is not None:
        array.reshape(-1).view(np.uint8)[...] = fill
    return array


def _split(context: int, n: int, grain: int, body: int, user: int) -> int:
    """Run the chunks that many threads would take, last one first."""
    run, step = abi.Range(body), max(1, grain)
    for begin in reversed(range(0, n, step)):
        run(user, begin, min(begin + step, n))
    return 0


_loop: ContextVar[Any] = ContextVar("_loop", default=_serial)
_fill: ContextVar[int | None] = ContextVar("_fill", default=None)


@contextlib.contextmanager
def split_loops(fill: int) -> Iterator[None]:
    """Within: kernels run their loops in chunks and backwards, on outputs full of this byte; dependence on it shows."""
    tokens = _loop.set(_split), _fill.set(fill)
    try:
        yield
    finally:
        _loop.reset(tokens[0])
        _fill.reset(tokens[1])


@contextlib.contextmanager
def native_loops(parallel_for: int) -> Iterator[None]:
    """Within: kernels run their loops by the C function at this address."""
    token = _loop.set(parallel_for)
    try:
        yield
    finally:
        _loop.reset(token)


def _log(context: int, level: int, text: bytes | None) -> None:
    if level >= 2 and text:
        import sys

        print(f"opforge: {text.decode('utf-8', 'replace')}", file=sys.stderr)


def _aligned(shape: Sequence[int], dtype: np.dtype[Any], alignment: int) -> Array:
    """Return a new array at a multiple of the alignment."""
    if alignment <= dtype.alignment:
        return np.empty(shape, dtype)
    if any(n < 0 for n in shape):
        raise ValueError("negative dimensions are not allowed")
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + alignment, np.uint8)
    start = -int(memory.__array_interface__["data"][0]) % alignment
    return memory[start : start + size].view(dtype).reshape(shape)


def _prepare(array: Array, strided: bool, alignment: int) -> Array:
    """Copy where the kernel cannot read the array as it is."""
    fits = array.flags.c_contiguous or (strided and all(s >= 0 and s % array.itemsize == 0 for s in array.strides))
    lies = alignment == 1 or array.__array_interface__["data"][0] % alignment == 0
    if fits and lies and array.flags.aligned:
        return array
    copy = _aligned(array.shape, array.dtype, alignment)
    copy[...] = array
    return copy
