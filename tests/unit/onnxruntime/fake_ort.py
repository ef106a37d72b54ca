"""ONNX Runtime's side of custom operators: a table of functions that hands out the host's memory as a GPU's."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p

import numpy as np

from tests.device_notes import STREAM

PLACES = 420
Status = c_void_p
ELEMENT = {np.dtype(np.float32): 1, np.dtype(np.float64): 11}

# name: place in the table, result, arguments
ROWS = {
    "create_status": (0, c_void_p, c_int32, c_char_p),
    "message": (2, c_void_p, c_void_p),
    "create_domain": (26, Status, c_char_p, POINTER(c_void_p)),
    "add_op": (27, Status, c_void_p, c_void_p),
    "add_domain": (28, Status, c_void_p, c_void_p),
    "data": (51, Status, c_void_p, POINTER(c_void_p)),
    "memory_id": (72, Status, c_void_p, POINTER(c_int32)),
    "allocate": (75, Status, c_void_p, c_size_t, POINTER(c_void_p)),
    "free": (76, Status, c_void_p, c_void_p),
    "allocator_info": (77, Status, c_void_p, POINTER(c_void_p)),
    "float_attribute": (85, Status, c_void_p, c_char_p, POINTER(ctypes.c_float)),
    "input": (90, Status, c_void_p, c_size_t, POINTER(c_void_p)),
    "output": (91, Status, c_void_p, c_size_t, POINTER(c_int64), c_size_t, POINTER(c_void_p)),
    "release_status": (93, None, c_void_p),
    "release_allocator": (132, None, c_void_p),
    "stream": (193, Status, c_void_p, POINTER(c_void_p)),
    "input_count": (230, Status, c_void_p, POINTER(c_size_t)),
    "output_count": (231, Status, c_void_p, POINTER(c_size_t)),
    "input_name": (232, Status, c_void_p, c_size_t, c_void_p, POINTER(c_size_t)),
    "input_type": (234, Status, c_void_p, c_size_t, POINTER(c_void_p)),
    "scratch": (277, Status, c_void_p, c_void_p, c_size_t, POINTER(c_void_p)),
    "allocator": (278, Status, c_void_p, c_int32, POINTER(c_void_p)),
    "shape": (414, Status, c_void_p, POINTER(c_int32), POINTER(POINTER(c_int64)), POINTER(c_size_t)),
}
ALLOCATOR, MEMORY = 0xA110, 0x3E30


class CustomOp(ctypes.Structure):
    """The functions of a registration that are called here, by their places."""

    _fields_ = (("version", c_uint32), ("functions", c_void_p * 25))

    def call(self, place: int, result, *arguments):
        kinds = [kind for kind, _ in arguments]
        function = CFUNCTYPE(result, c_void_p, *kinds)(self.functions[place])
        return function(ctypes.addressof(self), *(value for _, value in arguments))

    name = property(lambda self: self.call(1, c_char_p).decode())
    provider = property(lambda self: (self.call(2, c_char_p) or b"").decode())
    element = property(lambda self: self.call(3, c_int32, (c_size_t, 0)))


class Ort:
    """A session's worth of ONNX Runtime: what was registered, and runs of a node on the device that is given."""

    def __init__(self, device: int = 5, *, stream: int | None = STREAM) -> None:
        self.device, self.given_stream = device, stream
        self.ops: list[CustomOp] = []
        self.statuses: dict[int, tuple[int, object]] = {}
        self.blocks: dict[int, object] = {}
        self.live: set[int] = set()
        self.asked: list[str] = []
        self.allocators = 0
        self.inputs: list[np.ndarray] = []
        self.outputs: list[np.ndarray | None] = []
        self.attributes: dict[bytes, float] = {}
        self._values: list[np.ndarray] = []
        self._keep: list[object] = []
        self.table = (c_void_p * PLACES)()
        for name, (place, result, *arguments) in ROWS.items():
            function = CFUNCTYPE(result, *arguments)(getattr(self, f"_{name}"))
            self._keep.append(function)
            self.table[place] = ctypes.cast(function, c_void_p).value
        self._version = ctypes.create_string_buffer(b"1.25.0")
        get_api = CFUNCTYPE(c_void_p, c_uint32)(lambda _: ctypes.addressof(self.table))
        get_version = CFUNCTYPE(c_void_p)(lambda: ctypes.addressof(self._version))
        self._keep += [get_api, get_version]
        self.base = (c_void_p * 2)(*(ctypes.cast(f, c_void_p).value for f in (get_api, get_version)))

    def check(self, status: int | None) -> None:
        """Raise what a function returned."""
        if status:
            code, text = self.statuses.pop(status)
            raise RuntimeError(f"{code}: {text.value.decode()}")

    # ---- the table

    def _create_status(self, code, text):
        handle = len(self.statuses) + 1
        self.statuses[handle] = (code, ctypes.create_string_buffer(text))
        return handle

    def _message(self, status):
        return ctypes.addressof(self.statuses[status][1])

    def _release_status(self, status):
        del self.statuses[status]

    def _create_domain(self, _name, into):
        into[0] = 0xD0

    def _add_op(self, _domain, op):
        self.ops.append(CustomOp.from_address(op))

    def _add_domain(self, _options, _domain):
        return None

    def _allocator(self, _info, kind, into):
        assert kind == 0  # the device's own memory
        self.allocators += 1
        into[0] = ALLOCATOR

    def _release_allocator(self, allocator):
        assert allocator == ALLOCATOR
        self.allocators -= 1

    def _allocator_info(self, _allocator, into):
        into[0] = MEMORY

    def _memory_id(self, memory, into):
        assert memory == MEMORY
        into[0] = self.device

    def _block(self, how, size, into):
        block = ctypes.create_string_buffer(size + 256)
        start = -(-ctypes.addressof(block) // 256) * 256
        self.blocks[start] = block
        self.live.add(start)
        self.asked.append(how)
        into[0] = start

    def _allocate(self, allocator, size, into):
        assert allocator == ALLOCATOR
        self._block("allocator", size, into)

    def _scratch(self, _context, memory, size, into):
        assert memory == MEMORY
        self._block("scratch", size, into)

    def _free(self, allocator, memory):
        assert allocator == ALLOCATOR
        self.live.remove(memory)

    def _stream(self, _context, into):
        into[0] = self.given_stream

    def _float_attribute(self, _info, name, into):
        if name not in self.attributes:
            return self._create_status(1, b"no such attribute")
        into[0] = self.attributes[name]
        return None

    def _input_count(self, _info, into):
        into[0] = len(self.inputs)

    def _output_count(self, _info, into):
        into[0] = len(self.outputs)

    def _input_name(self, _info, index, out, size):
        if out is not None:
            ctypes.memmove(out, b"x", 2)
        size[0] = 2

    def _input_type(self, _info, _index, _into):
        return self._create_status(1, b"not known")

    def _value(self, array, into):
        self._values.append(array)
        into[0] = len(self._values)

    def _input(self, _context, index, into):
        self._value(self.inputs[index], into)

    def _output(self, _context, index, dims, rank, into):
        if self.outputs[index] is None:  # nobody reads it
            into[0] = None
            return
        self.outputs[index] = np.full(dims[:rank], np.nan, np.float32)
        self._value(self.outputs[index], into)

    def _data(self, value, into):
        into[0] = self._values[value - 1].ctypes.data

    def _shape(self, value, kind, dims, rank):
        array = self._values[value - 1]
        shape = (c_int64 * max(array.ndim, 1))(*array.shape)
        self._keep.append(shape)
        kind[0], rank[0] = ELEMENT[array.dtype], array.ndim
        dims[0] = ctypes.cast(shape, POINTER(c_int64))

    # ---- what ONNX Runtime does

    def register(self, library: ctypes.CDLL) -> list[CustomOp]:
        """Register the library with a session's options; return what it added."""
        before = len(self.ops)
        library.RegisterCustomOps.restype = c_void_p
        self.check(library.RegisterCustomOps(c_void_p(0x0975), ctypes.byref(self.base)))
        return self.ops[before:]

    def run(self, op: CustomOp, *arrays, wanted=True, **attributes: float) -> np.ndarray | None:
        """Make a node of the operator and run it once."""
        self.inputs = [np.ascontiguousarray(array) for array in arrays]
        self.outputs = [np.zeros(0, np.float32) if wanted else None]
        self.attributes = {name.encode(): value for name, value in attributes.items()}
        kernel = c_void_p()
        self.check(op.call(16, c_void_p, (c_void_p, None), (c_void_p, 0x1F0), (c_void_p, ctypes.addressof(kernel))))
        try:
            compute = CFUNCTYPE(c_void_p, c_void_p, c_void_p)(op.functions[17])
            self.check(compute(kernel, 0xC0))
            assert not self.live, "memory is not freed"
            return self.outputs[0]
        finally:
            CFUNCTYPE(None, c_void_p)(op.functions[8])(kernel)
            assert self.allocators == 0
