"""XLA's side of a call on a GPU: a call frame, and functions that hand out memory of the host and no real stream."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_void_p

import numpy as np

from tests.device_notes import STREAM

F32, S64, F64 = 11, 5, 12
PLACES = 18  # functions of XLA's table, in its order
CREATE, MESSAGE, DESTROY, GET_STREAM, ALLOCATE, FREE, ORDINAL = 0, 1, 2, 4, 9, 10, 17
HEAD = (("size", c_size_t), ("extensions", c_void_p))
Function = CFUNCTYPE(c_void_p, c_void_p)


def structure(name, *fields, head=HEAD):
    return type(name, (Structure,), {"_fields_": (*head, *fields)})


Create = structure("Create", ("message", c_char_p), ("code", c_int32))
Message = structure("Message", ("error", c_void_p), ("message", c_char_p))
Destroy = structure("Destroy", ("error", c_void_p))
Stream = structure("Stream", ("context", c_void_p), ("stream", c_void_p))
Ordinal = structure("Ordinal", ("context", c_void_p), ("ordinal", c_int32))
Allocate = structure(
    "Allocate", ("context", c_void_p), ("bytes", c_size_t), ("alignment", c_size_t), ("data", c_void_p)
)
Free = structure("Free", ("context", c_void_p), ("bytes", c_size_t), ("data", c_void_p))
Version = structure("Version", ("major", c_int32), ("minor", c_int32))
Table = structure("Table", ("version", Version), ("internal", c_void_p), ("functions", c_void_p * PLACES))
Buffer = structure("Buffer", ("dtype", c_int32), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)))
Values = structure("Values", ("count", c_int64), ("types", POINTER(c_int32)), ("values", POINTER(c_void_p)))
Span = structure("Span", ("data", c_char_p), ("size", c_size_t), head=())
Attributes = structure(
    "Attributes", ("count", c_int64), ("types", POINTER(c_int32)), ("names", POINTER(c_void_p)),
    ("values", POINTER(c_void_p)),
)  # fmt: skip
Frame = structure(
    "Frame", ("api", c_void_p), ("context", c_void_p), ("stage", c_int32), ("arguments", Values), ("results", Values),
    ("attributes", Attributes),
)  # fmt: skip


class Xla:
    """Calls a handler as XLA does; what it handed out and what came back are attributes."""

    def __init__(self, device: int = 3) -> None:
        self.device, self.memory, self.live, self.errors = device, {}, set(), {}
        self.refuse_memory = False
        kept = {CREATE: self._create, MESSAGE: self._message, DESTROY: self._destroy, GET_STREAM: self._stream}
        kept |= {ALLOCATE: self._allocate, FREE: self._free, ORDINAL: self._ordinal}
        self._kept = {place: Function(function) for place, function in kept.items()}
        self.table = Table(size=ctypes.sizeof(Table))
        self.table.version.minor = 3
        for place, function in self._kept.items():
            self.table.functions[place] = ctypes.cast(function, c_void_p).value

    def _create(self, at):
        given = Create.from_address(at)
        handle = len(self.errors) + 1
        self.errors[handle] = (given.code, given.message.decode())
        return handle

    def _message(self, at):
        given = Message.from_address(at)
        given.message = self.errors[given.error][1].encode()

    def _destroy(self, at):
        del self.errors[Destroy.from_address(at).error]

    def _stream(self, at):
        Stream.from_address(at).stream = STREAM

    def _ordinal(self, at):
        Ordinal.from_address(at).ordinal = self.device

    def _allocate(self, at):
        given = Allocate.from_address(at)
        if self.refuse_memory:
            self.errors[99] = (8, "no memory")
            return 99
        if given.alignment > 16:  # as XLA does
            self.errors[99] = (3, "Unsupported alignment")
            return 99
        block = ctypes.create_string_buffer(given.bytes + given.alignment)
        start = -(-ctypes.addressof(block) // given.alignment) * given.alignment
        self.memory[start] = block
        self.live.add(start)
        given.data = start
        return None

    def _free(self, at):
        self.live.remove(Free.from_address(at).data)

    def call(self, handler, key: str, *arrays, **attributes: float) -> list[np.ndarray]:
        """Run the handler on float32 arrays, the first of which has the output's shape; raises its words."""
        arrays = [np.ascontiguousarray(array, np.float32) for array in arrays]
        result = np.full_like(arrays[0], np.nan)
        keep = []

        def buffers(of):
            made = []
            for array in of:
                dims = (c_int64 * max(array.ndim, 1))(*array.shape)
                made.append(Buffer(ctypes.sizeof(Buffer), None, F32, array.ctypes.data, array.ndim, dims))
                keep.append(dims)
            keep.extend(made)
            pointers = (c_void_p * len(made))(*(ctypes.addressof(one) for one in made))
            return Values(ctypes.sizeof(Values), None, len(made), (c_int32 * len(made))(*[1] * len(made)), pointers)

        class Scalar(Structure):
            _fields_ = (("dtype", c_int32), ("value", c_void_p))

        rows = {"operator": (4, Span(key.encode(), len(key)))}
        for name, value in attributes.items():
            number = ctypes.c_double(value)
            keep.append(number)
            rows[name] = (3, Scalar(F64, ctypes.addressof(number)))
        names = [Span(name.encode(), len(name)) for name in rows]
        keep += [names, rows]
        count = len(rows)
        given = Attributes(
            ctypes.sizeof(Attributes), None, count,
            (c_int32 * count)(*(kind for kind, _ in rows.values())),
            (c_void_p * count)(*map(ctypes.addressof, names)),
            (c_void_p * count)(*(ctypes.addressof(value) for _, value in rows.values())),
        )  # fmt: skip
        frame = Frame(
            ctypes.sizeof(Frame), None, ctypes.addressof(self.table), None, 3, buffers(arrays), buffers([result]), given
        )
        error = handler(ctypes.byref(frame))
        assert not self.live, "memory is not freed"
        if error:
            code, text = self.errors.pop(error)
            raise RuntimeError(f"{code}: {text}")
        return result
