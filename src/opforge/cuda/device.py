"""Kernels of CUDA libraries on a device without a framework: arrays go there, kernels run, results come back.

For tests, `opforge tune` and the device check. A call is prepared once and launched as often as one likes; launching
allocates nothing and waits for nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from opforge.build import LoadedLibrary, abi
from opforge.build.cuda_driver import Device, Driver
from opforge.build.invoke import Call
from opforge.build.library import LibraryKernel
from opforge.errors import ArgumentError, UnsupportedError
from opforge.schema import ABSENT
from opforge.schema.dtypes import DType
from opforge.schema.operator import Operator

__all__ = ["DeviceArray", "Launcher", "Session"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DeviceArray:
    """A tensor in device memory, strides in elements; `memory` is the allocation that holds it, of `size` bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: int
    size: int

    @property
    def elements(self) -> int:
        """Return how many elements the shape has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dense(self) -> bool:
        """Return whether the strides are those of a row-major array."""
        rows = zip(self.shape, self.strides, _dense(self.shape), strict=True)
        return 0 in self.shape or all(n == 1 or stride == dense for n, stride, dense in rows)


class Session:
    """A device with what this process has put there; leaving it gives everything back."""

    def __init__(self, ordinal: int = 0) -> None:
        """Enter a device.

        Raises:
            UnsupportedError: there is no GPU, or none of this number; the message says why.
        """
        self.driver = Driver()
        devices = self.driver.devices()
        if not 0 <= ordinal < len(devices):
            raise UnsupportedError("no such GPU", where=f"GPU {ordinal}", expected=f"one of {len(devices)}")
        self.device: Device = devices[ordinal]
        self.driver.enter(ordinal)
        self._memory: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free all memory of this session."""
        for address in sorted(self._memory):
            self.driver.free(address)
        self._memory.clear()

    def allocate(self, size: int) -> int:
        """Return the address of memory that lives as long as the session, or until `free`."""
        address = self.driver.allocate(size)
        if address:
            self._memory.add(address)
        return address

    def free(self, *arrays: DeviceArray | int) -> None:
        """Give memory back before the session ends."""
        for array in arrays:
            address = array if isinstance(array, int) else array.memory
            if address in self._memory:
                self._memory.remove(address)
                self.driver.free(address)

    def upload(self, array: Array) -> DeviceArray:
        """Copy an array to the device with its strides and its offset from where 16 bytes are aligned."""
        if any(s < 0 or s % max(array.itemsize, 1) for s in array.strides):
            array = array.copy()
        strides = tuple(s // array.itemsize for s in array.strides)
        if not array.size:
            return DeviceArray(0, array.shape, strides, array.dtype, 0, 0)
        start = array.__array_interface__["data"][0]
        size = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) + array.itemsize
        offset = start % 16
        memory = self.allocate(size + offset)
        self.driver.upload(memory + offset, start, size)
        return DeviceArray(memory + offset, array.shape, strides, array.dtype, memory, size + offset)

    def empty(self, shape: Sequence[int], dtype: Any) -> DeviceArray:  # noqa: ANN401 - what NumPy takes
        """Make a dense array full of bytes 0xFF: NaN where nothing is written."""
        kind, sizes = np.dtype(dtype), tuple(shape)
        size = int(np.prod(sizes, dtype=np.int64)) * kind.itemsize
        memory = self.allocate(size)
        self.driver.fill(memory, 0xFF, size)
        self.driver.synchronize(0)  # the array may be used on a stream that does not wait for the default one
        return DeviceArray(memory, sizes, _dense(sizes), kind, memory, size)

    def download(self, array: DeviceArray) -> Array:
        """Wait for the device and copy a dense array back."""
        if not array.dense:
            raise ArgumentError("only dense arrays come back", where="download", got=f"strides {array.strides}")
        self.driver.synchronize()
        result = np.empty(array.shape, array.dtype)
        self.driver.download(result.__array_interface__["data"][0], array.address, result.nbytes)
        return result

    def prepare(
        self,
        operator: Operator,
        tensors: Sequence[DeviceArray | tuple[DeviceArray, ...] | None],
        attributes: Mapping[str, object] | None = None,
        *,
        library: LoadedLibrary,
        outputs: Sequence[DeviceArray] | None = None,
    ) -> Launcher:
        """Make everything that a launch needs, its outputs among them.

        Args:
            operator: what to compute.
            tensors: per input parameter an array, None (absent optional) or a tuple (variadic).
            attributes: as of a call.
            library: holds the kernel for the device.
            outputs: where to write; None = new arrays.

        Raises:
            ArgumentError: wrong count, rank, dimension or value, or an output whose shape depends on data.
            DtypeError: wrong dtype.
            UnsupportedError: the library has no kernel for these dtypes.
        """
        groups = [list(v) if isinstance(v, tuple) else [v] for v in tensors]
        flat = [array for group in groups for array in group]
        kinds = [None if a is None else DType.parse(a.dtype) for a in flat]
        binding = operator.bind([ABSENT if a is None else a.shape for a in flat], kinds, attributes or {})
        kernel = library.operator(operator.key).kernel_for(
            tuple((binding.types[v].code, binding.types[v].bits) for v in operator.types), abi.DEVICE_CUDA
        )
        if any(shape is None or None in shape for shape in binding.output_shapes):
            raise ArgumentError("an output's shape depends on data", where=operator.key)
        if outputs is None:
            rows = zip(binding.output_shapes, binding.output_dtypes, strict=True)
            outputs = [
                self.empty([int(d or 0) for d in shape or ()], dtype.numpy if dtype else np.float64)
                for shape, dtype in rows
            ]
        values = [(a.kind, binding.attributes[a.name]) for a in operator.signature.attributes]
        pointers = [[a for a in group if a is not None] for group in groups]
        strange = [a.strides for group in pointers for a in group if not a.dense]
        if strange and not kernel.flags & abi.KERNEL_STRIDED:
            raise ArgumentError("the kernel takes dense arrays only", where=operator.key, got=f"strides {strange[0]}")
        counts, rest, made = binding.output_counts, list(outputs), []
        for count in counts:
            made.append(rest[:count])
            rest = rest[count:]
        return Launcher(self, kernel, pointers, made, values, operator.key)

    def call(
        self,
        operator: Operator,
        arrays: Sequence[Array | tuple[Array, ...] | None],
        attributes: Mapping[str, object] | None = None,
        *,
        library: LoadedLibrary,
        stream: int = 0,
    ) -> list[Array]:
        """Compute on arrays of the host: copy them there, launch once, wait, copy the outputs back."""

        def send(array: Array) -> DeviceArray:
            return self.upload(array if operator.strided else np.array(array, order="C"))

        sent = [None if a is None else tuple(map(send, a)) if isinstance(a, tuple) else send(a) for a in arrays]
        launcher = self.prepare(operator, sent, attributes, library=library)
        try:
            launcher(stream)
            return [self.download(array) for array in launcher.outputs]
        finally:
            inputs = [a for value in sent for a in (value if isinstance(value, tuple) else (value,)) if a is not None]
            self.free(*inputs, *launcher.outputs, *launcher.scratch)


class Launcher:
    """One kernel with its tensors; calling it launches.

    Attributes:
        outputs: what it writes.
        scratch: addresses of the memory that the kernel asked for; kept from launch to launch.
    """

    def __init__(
        self,
        session: Session,
        kernel: LibraryKernel,
        inputs: Sequence[Sequence[DeviceArray]],
        outputs: Sequence[Sequence[DeviceArray]],
        attributes: Sequence[tuple[str, Any]],
        where: str,
    ) -> None:
        """Lay out the arguments; nothing runs yet."""
        self.kernel, self.where = kernel, where
        self.outputs = [array for group in outputs for array in group]
        self._call = _DeviceCall(session, [DType.parse(a.dtype) for a in self.outputs])
        self._inputs = self._call.arguments(inputs)  # type: ignore[arg-type]
        self._outputs = self._call.arguments(outputs)  # type: ignore[arg-type]
        self._context = self._call.context(kernel)
        self._values = (abi.Attribute * max(1, len(attributes)))()
        for slot, (kind, value) in zip(self._values, attributes, strict=False):
            self._call.attribute(slot, kind, value)
        self._run = abi.KernelFunction(kernel.run)
        groups = [array for group in inputs for array in group]
        self.elements = sum(a.elements for a in [*groups, *self.outputs])

    @property
    def scratch(self) -> list[int]:
        """Return the addresses of the scratch memory."""
        return [*(address for address, _ in self._call.pool), *self._call.outgrown]

    def __call__(self, stream: int = 0) -> None:
        """Launch on a stream.

        Raises:
            OpforgeError: what the kernel reports, as the class of its status.
        """
        self._call.next_scratch = 0
        self._context.stream = stream or None
        status = self._run(
            ctypes.byref(self._context), ctypes.byref(self._inputs), ctypes.byref(self._outputs), self._values
        )
        if status:
            raise self._call.failure(status, self.where)


class _DeviceCall(Call):
    """Arguments in device memory. Scratch memory of the first launch serves the later ones, so that they allocate none.

    `pool` has (address, bytes) in the order in which a launch asks. A variant of the kernel may ask for more than the
    one before it; what was too small for it, `outgrown`, may be in graphs that were captured, and is kept.
    """

    def __init__(self, session: Session, output_dtypes: list[DType]) -> None:
        super().__init__(abi.DEVICE_CUDA, output_dtypes)
        self.device = abi.Device(abi.DEVICE_CUDA, session.device.ordinal)
        self.session = session
        self.pool: list[tuple[int, int]] = []
        self.outgrown: list[int] = []
        self.next_scratch = 0

    def fill(self, tensor: abi.Tensor, array: Any) -> None:  # noqa: ANN401 - a DeviceArray
        dtype = DType.parse(array.dtype)
        rank = len(array.shape)
        shape = (ctypes.c_int64 * max(1, rank))(*array.shape)
        tensor.data = array.address or None
        tensor.device = self.device
        tensor.ndim = rank
        tensor.dtype = abi.DType(dtype.code, dtype.bits, 1)
        tensor.shape = shape
        if not array.dense:
            tensor.strides = (ctypes.c_int64 * max(1, rank))(*array.strides)
        self.kept += [array, shape, tensor.strides]

    def _scratch(self, context: int, size: int, alignment: int) -> int | None:
        wanted = size + alignment
        if self.next_scratch == len(self.pool):
            self.pool.append((self.session.allocate(wanted), wanted))
        address, room = self.pool[self.next_scratch]
        if room < wanted:
            self.outgrown.append(address)
            address = self.session.allocate(wanted)
            self.pool[self.next_scratch] = (address, wanted)
        self.next_scratch += 1
        return (address + alignment - 1) // alignment * alignment


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
