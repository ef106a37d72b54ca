"""libLiteRt.so of the installed package, by ctypes: the functions that a session calls, in our own declarations."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, c_bool, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from importlib import metadata, util
from pathlib import Path
from typing import Any, Final

from opforge.build.native import load_native
from opforge.errors import MissingOperatorError, OpforgeError, UnsupportedError

__all__ = ["MAX_RANK", "OLDEST", "Layout", "LiteRtLibrary", "ProfiledEvent", "TensorType", "library", "version"]

MAX_RANK: Final = 8
OLDEST: Final = (2, 2)
"""Oldest version that the adapter is tested with."""


class Layout(Structure):
    """LiteRtLayout: the rank is in the lower seven bits of the first field."""

    _fields_ = (("bits", c_uint32), ("dims", c_int32 * MAX_RANK), ("strides", c_uint32 * MAX_RANK))

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Layout:
        """Return the layout of a dense tensor."""
        return cls(len(shape), (c_int32 * MAX_RANK)(*shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return tuple(self.dims[k] for k in range(self.bits & 127))


class TensorType(Structure):
    """LiteRtRankedTensorType."""

    _fields_ = (("element_type", c_int32), ("layout", Layout))


class _EnvironmentOption(Structure):
    """LiteRtEnvOption with a LiteRtAny that holds an integer."""

    _fields_ = (("tag", c_int32), ("_gap", c_int32), ("kind", c_int32), ("value", ctypes.c_int64))


class _Memory(Structure):
    _fields_ = (("total", c_size_t), ("used", c_size_t), ("private", c_size_t))


class ProfiledEvent(Structure):
    """ProfiledEventData; times are in microseconds."""

    _fields_ = (
        ("tag", c_char_p),
        ("kind", c_int32),
        ("start", c_uint64),
        ("elapsed", c_uint64),
        ("before", _Memory),
        ("after", _Memory),
        ("node", c_uint64),
        ("subgraph", c_uint64),
        ("source", c_int32),
    )


_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "CreateEnvironment": (c_int, POINTER(_EnvironmentOption), POINTER(c_void_p)),
    "DestroyEnvironment": (c_void_p,),
    "CreateOptions": (POINTER(c_void_p),),
    "DestroyOptions": (c_void_p,),
    "SetOptionsHardwareAccelerators": (c_void_p, c_int),
    "CreateOpaqueOptions": (c_char_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "AddOpaqueOptions": (c_void_p, c_void_p),
    "CreateModelFromFile": (c_void_p, c_char_p, POINTER(c_void_p)),
    "CreateModelFromBuffer": (c_void_p, c_void_p, c_size_t, POINTER(c_void_p)),
    "DestroyModel": (c_void_p,),
    "CreateCompiledModel": (c_void_p, c_void_p, c_void_p, POINTER(c_void_p)),
    "DestroyCompiledModel": (c_void_p,),
    "CompiledModelResizeInputTensor": (c_void_p, c_size_t, c_size_t, POINTER(c_int), c_size_t),
    "GetCompiledModelOutputTensorLayouts": (c_void_p, c_size_t, c_size_t, POINTER(Layout), c_bool),
    "RunCompiledModel": (c_void_p, c_size_t, c_size_t, POINTER(c_void_p), c_size_t, POINTER(c_void_p)),
    "CompiledModelClearErrors": (c_void_p,),
    "CompiledModelGetErrorMessages": (c_void_p, POINTER(c_void_p)),
    "CompiledModelGetProfiler": (c_void_p, POINTER(c_void_p)),
    "StartProfiler": (c_void_p,),
    "StopProfiler": (c_void_p,),
    "ResetProfiler": (c_void_p,),
    "GetNumProfilerEvents": (c_void_p, POINTER(c_int)),
    "GetProfilerEvents": (c_void_p, c_int, POINTER(ProfiledEvent)),
    "CreateTensorBufferFromHostMemory": (POINTER(TensorType), c_void_p, c_size_t, c_void_p, POINTER(c_void_p)),
    "DestroyTensorBuffer": (c_void_p,),
}
"""Name behind LiteRt -> types of the arguments; all give a status but those that destroy."""

_STATUSES: Final = {
    1: "invalid argument",
    2: "out of memory",
    3: "runtime failure",
    4: "missing input tensor",
    5: "unsupported",
    6: "not found",
    8: "wrong version",
    500: "file cannot be read",
    501: "invalid flatbuffer",
    504: "compilation failed",
    1000: "index out of bounds",
    1001: "invalid type",
    1002: "invalid graph",
}


class LiteRtLibrary:
    """The loaded library; an attribute per function, by its name without ``LiteRt``."""

    def __init__(self, path: Path) -> None:
        """Load it and look the functions up.

        Raises:
            UnsupportedError: it does not load, or lacks a function.
        """
        self.path = path
        found = load_native(path, "LiteRT library")
        for name, arguments in _FUNCTIONS.items():
            try:
                function = getattr(found, f"LiteRt{name}")
            except AttributeError:
                raise _too_old(version(), f"no function LiteRt{name}") from None
            function.argtypes = arguments
            function.restype = None if "Destroy" in name else c_int
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a function of ctypes
        raise AttributeError(name)

    def make(self, name: str, *arguments: object) -> c_void_p:
        """Call a function whose last argument receives a handle."""
        handle = c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def call(self, name: str, *arguments: object) -> None:
        """Call a function.

        Raises:
            UnsupportedError: its status is an error.
        """
        status = getattr(self, name)(*arguments)
        if status:
            raise self.failure(name, status)

    def failure(self, name: str, status: int) -> OpforgeError:
        """Make the error of a status."""
        words = f"status {status}" + (f", {_STATUSES[status]}" if status in _STATUSES else "")
        return UnsupportedError("LiteRT refuses", where=f"LiteRt{name}", got=words)

    def environment(self) -> c_void_p:
        """Make an environment that says only what is wrong."""
        # Tags 24 and 25: which accelerators to look for (1 = the CPU's), and the lowest severity of the log's lines.
        options = (_EnvironmentOption * 2)(
            _EnvironmentOption(24, 0, _INTEGER, 1), _EnvironmentOption(25, 0, _INTEGER, _SILENT)
        )
        return self.make("CreateEnvironment", len(options), options)


_INTEGER: Final = 2
_SILENT: Final = 4


def version() -> str:
    """Return the version of the installed package.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    try:
        return metadata.version("ai-edge-litert")
    except metadata.PackageNotFoundError:
        message = "opforge.litert needs ai-edge-litert, which is not installed: pip install 'opforge[litert]'"
        raise ModuleNotFoundError(message, name="ai_edge_litert") from None


def too_old(text: str) -> bool:
    """Whether a version is older than the adapter is tested with."""
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit()) < OLDEST


def _too_old(found: str, got: str) -> UnsupportedError:
    return UnsupportedError(
        "this LiteRT is too old",
        where="ai-edge-litert",
        expected=".".join(map(str, OLDEST)) + " or newer",
        got=f"{found} ({got})" if got else found,
        hint="pip install --upgrade ai-edge-litert",
    )


@functools.cache
def library() -> LiteRtLibrary:
    """Return the library of the installed package, loading it on the first call.

    Raises:
        ModuleNotFoundError: the package is not installed.
        UnsupportedError: it is too old.
        MissingOperatorError: it has no library for this platform.
    """
    found = version()
    if too_old(found):
        raise _too_old(found, "")
    spec = util.find_spec("ai_edge_litert")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    path = folder / "libLiteRt.so"
    if not path.is_file():
        raise MissingOperatorError(
            "the installed LiteRT has no library for this platform", where=str(path), hint="install it on Linux"
        )
    return LiteRtLibrary(path)
