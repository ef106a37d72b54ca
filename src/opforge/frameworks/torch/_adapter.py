"""The native adapter of this process: which route it takes, and the C functions of the one that is loaded."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from opforge._paths import library_dir
from opforge.build.native import TEXT_SIZE, call_native, load_native, to_error
from opforge.errors import ArgumentError, Candidate, CandidateError, OpforgeError
from opforge.frameworks.torch import _accelerator

__all__ = ["Adapter", "Route", "adapter", "last_failure", "route", "set_device_loader"]

Route = Literal["stable", "accelerator"]
ROUTES: Final = ("auto", "stable", "accelerator")


@dataclass(frozen=True)
class Adapter:
    """A loaded adapter.

    Attributes:
        route: ``stable`` (prebuilt, through PyTorch's stable C ABI) or ``accelerator`` (compiled here, with C++
            autograd).
        path: its shared object.
        library: the ctypes handle.
    """

    route: Route
    path: Path
    library: ctypes.CDLL

    def define(self, operator: int, namespace: str, name: str) -> None:
        """Register the operator whose ``opforge_operator`` lies at this address as ``torch.ops.namespace.name``."""
        call_native(self.library.opforge_torch_define, operator, namespace.encode(), name.encode(), error=to_error)


_lock = threading.Lock()
_adapter: Adapter | None = None
_device_loader: Callable[..., int] | None = None


def set_device_loader(loader: Callable[..., int]) -> None:
    """Set what the adapter asks for kernels on a device; before it is loaded. See ``opforge.frameworks._devices``."""
    global _device_loader
    _device_loader = loader


def route() -> Route:
    """Return the route of this process; it is chosen on the first question and stays.

    ``OPFORGE_TORCH_ROUTE`` = ``auto`` (the accelerator where it has been built, else the stable route), ``stable`` or
    ``accelerator``.
    """
    return adapter().route


def adapter() -> Adapter:
    """Return the adapter of this process, loading it on the first call.

    Raises:
        ArgumentError: ``OPFORGE_TORCH_ROUTE`` has an unknown value.
        CandidateError: no adapter can be loaded; each is listed with its reason.
    """
    global _adapter
    if _adapter is None:
        with _lock:
            if _adapter is None:
                _adapter = _choose()
    return _adapter


def _choose() -> Adapter:
    wanted = os.environ.get("OPFORGE_TORCH_ROUTE", "auto").strip().lower() or "auto"
    if wanted not in ROUTES:
        raise ArgumentError("unknown route", where="OPFORGE_TORCH_ROUTE", expected=" | ".join(ROUTES), got=repr(wanted))
    rejected: list[Candidate] = []
    if wanted != "stable":
        path = _accelerator.built()
        if path is None:
            rejected.append(Candidate("accelerator", "not built for this PyTorch yet"))
        else:
            try:
                return _load("accelerator", path)
            except OpforgeError as error:
                rejected.append(Candidate("accelerator", str(error)))
    if wanted != "accelerator":
        try:
            return _load("stable", library_dir() / "libopforge_torch.so")
        except OpforgeError as error:
            rejected.append(Candidate("stable", str(error)))
    raise CandidateError(
        "no PyTorch adapter can be loaded",
        rejected,
        where=f"torch {torch.__version__}",
        hint="build the accelerator: opforge build --host torch",
    )


def _load(kind: Route, path: Path) -> Adapter:
    library = load_native(path, "adapter")
    library.opforge_torch_define.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
    ]  # fmt: skip
    library.opforge_torch_define.restype = ctypes.c_int32
    library.opforge_torch_last_failure.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.opforge_torch_last_failure.restype = ctypes.c_int32
    library.opforge_torch_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    library.opforge_torch_open.restype = ctypes.c_int32
    library.opforge_torch_set_cuda.argtypes = [ctypes.c_char_p]
    library.opforge_torch_set_cuda.restype = None
    library.opforge_torch_set_device_loader.restype = None
    call_native(library.opforge_torch_open, str(_libtorch("cpu")).encode(), error=to_error)
    library.opforge_torch_set_cuda(str(_libtorch("cuda")).encode())
    if _device_loader is not None:
        library.opforge_torch_set_device_loader(_device_loader)
    return Adapter(kind, path, library)


def _libtorch(part: str) -> Path:
    return Path(torch.__file__).parent / "lib" / f"libtorch_{part}.so"


def last_failure() -> OpforgeError | None:
    """Return what the adapter last raised in this thread, as the class that opforge promises, and forget it."""
    if _adapter is None:
        return None
    text = ctypes.create_string_buffer(TEXT_SIZE)
    status = _adapter.library.opforge_torch_last_failure(text, TEXT_SIZE)
    return to_error(status, text.value.decode("utf-8", "replace")) if status else None
