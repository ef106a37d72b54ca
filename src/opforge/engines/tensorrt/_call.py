"""One call of a CUDA kernel on TensorRT's pointers, stream and workspace, described once per set of shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opforge.build import abi
from opforge.build.invoke import Call
from opforge.errors import ArgumentError, UnsupportedError
from opforge.schema import ABSENT
from opforge.schema.infer import PLAIN, Binding, Guards, ShapeLike

if TYPE_CHECKING:
    from opforge.build.library import LibraryKernel, LibraryOperator
    from opforge.engines.tensorrt._fields import Content
    from opforge.schema import DType, Operator

__all__ = ["DeviceCall", "bind_call"]

_ALIGNMENT = 256


def bind_call(
    operator: Operator,
    content: Content,
    shapes: Sequence[ShapeLike],
    dtypes: Sequence[DType | None],
    guards: Guards = PLAIN,
) -> Binding:
    """Bind the tensors that a plugin gets, which are those that are there, to the operator.

    Raises:
        ArgumentError: wrong number of tensors, rank, dimension.
        DtypeError: wrong dtype.
    """
    if content.counts is None:
        return operator.bind(shapes, dtypes, content.values, guards=guards)
    if sum(content.counts) != len(shapes):
        expected = f"{sum(content.counts)} tensors, {operator.signature.expected_inputs()}"
        raise ArgumentError("wrong number of inputs", where=operator.key, expected=expected, got=len(shapes))
    flat_shapes: list[ShapeLike] = []
    flat_dtypes: list[DType | None] = []
    place = 0
    for count in content.counts:
        flat_shapes += list(shapes[place : place + count]) or [ABSENT]
        flat_dtypes += list(dtypes[place : place + count]) or [None]
        place += count
    return operator.bind(flat_shapes, flat_dtypes, content.values, guards=guards)


class DeviceCall(Call):
    """Arguments of one call, ready but for the addresses."""

    def __init__(
        self,
        operator: Operator,
        row: LibraryOperator,
        content: Content,
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[DType],
        device: int,
    ) -> None:
        """Choose the kernel and describe the tensors.

        Raises:
            OpforgeError: the inputs do not fit the operator, or it has no CUDA kernel for them.
        """
        binding = bind_call(operator, content, list(shapes), list(dtypes))
        super().__init__(abi.DEVICE_CUDA, [dtype for dtype in binding.output_dtypes if dtype is not None])
        self.device = abi.Device(abi.DEVICE_CUDA, device)
        self.where = operator.key
        self.output_shapes = [_known(operator, shape) for shape in binding.output_shapes]
        choice = tuple((binding.types[v].code, binding.types[v].bits) for v in operator.types)
        kernel = row.kernel_for(choice, abi.DEVICE_CUDA)
        self._inputs = self._described(list(shapes), list(dtypes), binding.input_counts)
        self._outputs = self._described(self.output_shapes, self.output_dtypes, binding.output_counts)
        self._context = self.context(kernel)
        self._attributes = (abi.Attribute * max(1, len(content.values)))()
        for slot, attribute in zip(self._attributes, operator.signature.attributes, strict=False):
            self.attribute(slot, attribute.kind, content.values[attribute.name])
        self._kernel = kernel
        self._run = abi.KernelFunction(kernel.run)
        self._workspace = (0, 0)  # address and bytes that are left

    @property
    def kernel(self) -> LibraryKernel:
        """The kernel that runs."""
        return self._kernel

    def enqueue(
        self, inputs: Sequence[int], outputs: Sequence[int], workspace: int, workspace_size: int, stream: int
    ) -> None:
        """Launch the kernel on the stream; nothing is allocated, copied or waited for.

        Raises:
            OpforgeError: what the kernel reports.
        """
        for slots, addresses in ((self._inputs, inputs), (self._outputs, outputs)):
            for k, address in enumerate(addresses):
                slots.tensors[k].data = address or None
        self._context.stream = stream or None
        self._workspace = (workspace, workspace_size if workspace else 0)
        self.text = ""
        status = self._run(
            ctypes.byref(self._context), ctypes.byref(self._inputs), ctypes.byref(self._outputs), self._attributes
        )
        if status:
            raise self.failure(status, self.where)

    def _described(
        self, shapes: Sequence[Sequence[int]], dtypes: Sequence[DType], counts: Sequence[int]
    ) -> abi.Arguments:
        tensors = (abi.Tensor * max(1, len(shapes)))()
        for tensor, shape, dtype in zip(tensors, shapes, dtypes, strict=False):
            self.describe(tensor, shape, dtype)
        held = (ctypes.c_int32 * max(1, len(counts)))(*counts)
        self.kept += [tensors, held]
        return abi.Arguments(tensors, held, len(shapes), len(counts))

    def _scratch(self, context: int, size: int, alignment: int) -> int | None:
        """Memory of the workspace that TensorRT gives, from the front."""
        address, left = self._workspace
        step = max(alignment, _ALIGNMENT)
        begin = -(-address // step) * step
        end = begin + size
        if not address or end > address + left:
            return None
        self._workspace = (end, address + left - end)
        return begin


def _known(operator: Operator, shape: Sequence[int | None] | None) -> list[int]:
    sizes = [] if shape is None else [size for size in shape if size is not None]
    if shape is None or len(sizes) != len(shape):
        raise UnsupportedError("a shape that depends on data has no form in a plugin", where=operator.key)
    return sizes
