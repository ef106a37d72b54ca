"""The structs of ``include/opforge/abi.h`` as ctypes; a test compares every offset with the C header."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)

__all__ = [
    "ABI",
    "KERNEL_STRIDED",
    "OPERATOR_DETERMINISTIC",
    "OPERATOR_DIFFERENTIABLE",
    "OPERATOR_FORMULA",
    "OPERATOR_GRADIENT",
    "OPERATOR_PURE",
    "AllocateOutput",
    "Arguments",
    "Attribute",
    "Context",
    "DType",
    "Device",
    "Error",
    "Host",
    "Kernel",
    "KernelFunction",
    "Library",
    "Log",
    "Operator",
    "ParallelFor",
    "Range",
    "Scratch",
    "String",
    "Tensor",
]

ABI = 0
DEVICE_CPU = 1
DEVICE_CUDA = 2
DEVICE_NAMES = {DEVICE_CPU: "cpu", DEVICE_CUDA: "cuda", 10: "rocm", 12: "ext"}

KERNEL_STRIDED = 1 << 0

OPERATOR_PURE = 1 << 0
OPERATOR_DETERMINISTIC = 1 << 1
OPERATOR_DIFFERENTIABLE = 1 << 2
OPERATOR_FORMULA = 1 << 3
OPERATOR_GRADIENT = 1 << 4

# Attribute kinds, in the order of OPFORGE_ATTRIBUTE_*.
ATTRIBUTE_KINDS = {
    "int": 1, "float": 2, "string": 3, "bool": 4, "ints": 5, "floats": 6, "strings": 7, "bools": 8,
}  # fmt: skip


class DType(Structure):
    """A DLPack dtype."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class Device(Structure):
    """A DLPack device."""

    _fields_ = (("type", c_int32), ("id", c_int32))


class Tensor(Structure):
    """A DLPack tensor."""

    _fields_ = (
        ("data", c_void_p),
        ("device", Device),
        ("ndim", c_int32),
        ("dtype", DType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class String(Structure):
    """A string attribute: UTF-8 with its size in bytes."""

    _fields_ = (("data", c_char_p), ("size", c_int64))


class _AttributeValue(Union):
    _fields_ = (
        ("i", c_int64),
        ("f", c_double),
        ("s", String),
        ("ints", POINTER(c_int64)),
        ("floats", POINTER(c_double)),
        ("strings", POINTER(String)),
    )


class Attribute(Structure):
    """One attribute of a call."""

    _fields_ = (("kind", c_int32), ("reserved", c_int32), ("count", c_int64), ("value", _AttributeValue))


class Arguments(Structure):
    """The tensors of all parameters, flat, with a count per parameter."""

    _fields_ = (
        ("tensors", POINTER(Tensor)),
        ("counts", POINTER(c_int32)),
        ("n_tensors", c_int32),
        ("n_parameters", c_int32),
    )


Range = CFUNCTYPE(None, c_void_p, c_int64, c_int64)
ParallelFor = CFUNCTYPE(c_int32, c_void_p, c_int64, c_int64, c_void_p, c_void_p)
Scratch = CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
AllocateOutput = CFUNCTYPE(c_int32, c_void_p, c_int32, POINTER(c_int64), c_int32)
Error = CFUNCTYPE(c_int32, c_void_p, c_int32, c_char_p)
Log = CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class Context(Structure):
    """What the host offers to a running kernel."""

    _fields_ = (
        ("size", c_uint32),
        ("abi", c_uint32),
        ("device", Device),
        ("stream", c_void_p),
        ("host", c_void_p),
        ("kernel_data", c_void_p),
        ("parallel_for", ParallelFor),
        ("scratch", Scratch),
        ("allocate_output", AllocateOutput),
        ("error", Error),
        ("log", Log),
        ("seed", c_uint64),
        ("offset", c_uint64),
        ("reserved", c_void_p * 8),
    )


# Without the GIL while the kernel runs: ctypes releases it around CFUNCTYPE calls.
KernelFunction = CFUNCTYPE(c_int32, POINTER(Context), POINTER(Arguments), POINTER(Arguments), POINTER(Attribute))


class Kernel(Structure):
    """One kernel of an operator for one device and one choice of dtypes."""

    _fields_ = (
        ("size", c_uint32),
        ("abi", c_uint32),
        ("device_type", c_int32),
        ("flags", c_uint32),
        ("dtypes", POINTER(DType)),
        ("n_dtypes", c_int32),
        ("alignment", c_uint32),
        ("run", c_void_p),
        ("data", c_void_p),
        ("inplace", POINTER(c_int32)),
        ("n_inplace", c_int32),
        ("reserved0", c_int32),
        ("reserved", c_void_p * 4),
    )


class Operator(Structure):
    """One operator of a library."""

    _fields_ = (
        ("size", c_uint32),
        ("abi", c_uint32),
        ("domain", c_char_p),
        ("name", c_char_p),
        ("since_version", c_int32),
        ("flags", c_uint32),
        ("signature", c_char_p),
        ("types", c_char_p),
        ("autocast", c_char_p),
        ("gradient", c_char_p),
        ("schema_hash", c_char_p),
        ("kernels", POINTER(POINTER(Kernel))),
        ("n_kernels", c_int32),
        ("reserved0", c_int32),
        ("reserved", c_void_p * 8),
    )


class Library(Structure):
    """The table of a kernel library."""

    _fields_ = (
        ("size", c_uint32),
        ("abi", c_uint32),
        ("id", c_char_p),
        ("version", c_char_p),
        ("content_hash", c_char_p),
        ("build", c_char_p),
        ("operators", POINTER(POINTER(Operator))),
        ("n_operators", c_int32),
        ("reserved0", c_int32),
        ("architectures", c_char_p),
        ("reserved", c_void_p * 7),
    )


class Host(Structure):
    """What the caller offers to a library."""

    _fields_ = (
        ("size", c_uint32),
        ("abi", c_uint32),
        ("name", c_char_p),
        ("version", c_char_p),
        ("reason", c_void_p),
        ("reason_size", c_size_t),
        ("reserved", c_void_p * 8),
    )


def new_host(reason: ctypes.Array[ctypes.c_char]) -> Host:
    """Return a host head whose refusals are written to `reason`."""
    host = Host(size=ctypes.sizeof(Host), abi=ABI, name=b"opforge", version=b"0.1.0")
    host.reason = ctypes.addressof(reason)
    host.reason_size = ctypes.sizeof(reason)
    return host
