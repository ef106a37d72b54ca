"""Kernel libraries: load a shared object and read its table into Python objects."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from pathlib import Path

from opforge.build import abi
from opforge.build.tuning import apply_stored
from opforge.errors import CorruptFileError, MissingOperatorError, OpforgeError, UnsupportedError
from opforge.schema.dtypes import DType

__all__ = ["LibraryKernel", "LibraryOperator", "LoadedLibrary", "load_library", "read_table"]


@dataclass(frozen=True)
class LibraryKernel:
    """One kernel: `dtypes` as (code, bits) per type variable, `run` and `data` as addresses."""

    device_type: int
    flags: int
    dtypes: tuple[tuple[int, int], ...]
    alignment: int
    run: int
    data: int
    inplace: tuple[tuple[int, int], ...]
    address: int


@dataclass(frozen=True)
class LibraryOperator:
    """One operator of a table, `address` being that of its ``opforge_operator``."""

    domain: str
    name: str
    since_version: int
    flags: int
    signature: str
    types: str
    autocast: str
    gradient: str
    schema_hash: str
    kernels: tuple[LibraryKernel, ...]
    address: int

    @property
    def key(self) -> str:
        """Return ``domain::Name:version``."""
        return f"{self.domain}::{self.name}:{self.since_version}"

    def kernel_for(self, dtypes: tuple[tuple[int, int], ...], device_type: int = abi.DEVICE_CPU) -> LibraryKernel:
        """Return the kernel for these dtypes, as (code, bits) per type variable.

        Raises:
            UnsupportedError: no kernel serves them; the message lists those that exist.
        """
        for kernel in self.kernels:
            if kernel.device_type == device_type and kernel.dtypes == dtypes:
                return kernel
        rows = sorted({_choice(k.device_type, k.dtypes) for k in self.kernels})
        raise UnsupportedError(
            "no kernel for these dtypes", where=self.key, expected="; ".join(rows), got=_choice(device_type, dtypes)
        )


def _choice(device_type: int, dtypes: tuple[tuple[int, int], ...]) -> str:
    names = ", ".join(DType.from_dlpack(code, bits).name for code, bits in dtypes)
    return f"{abi.DEVICE_NAMES.get(device_type, f'device {device_type}')} ({names})"


@dataclass(frozen=True)
class LoadedLibrary:
    """A library in this process.

    Attributes:
        path: the shared object, or None where the operators run by the interpreter.
        table: address of the ``opforge_library`` table, valid as long as the process lives.
        operators: by key ``domain::Name:version``, gradient operators included.
        architectures: of devices whose code it embeds, such as ``sm_80`` and, for PTX, ``compute_90``.
    """

    path: Path | None
    table: int
    id: str
    version: str
    content_hash: str
    build: str
    operators: dict[str, LibraryOperator] = field(repr=False)
    architectures: tuple[str, ...] = ()

    @property
    def interpreted(self) -> bool:
        """Return whether formulas run by the bytecode interpreter instead of compiled code."""
        return self.path is None

    def operator(self, key: str) -> LibraryOperator:
        """Return the operator ``domain::Name:version``."""
        try:
            return self.operators[key]
        except KeyError:
            raise MissingOperatorError(
                f"operator {key} is not in the library", where=str(self.path or self.id), got=sorted(self.operators)
            ) from None


# By path and file identity: a library that was built anew in place is another one.
_loaded: dict[tuple[Path, int, int], LoadedLibrary] = {}


def load_library(path: str | os.PathLike[str]) -> LoadedLibrary:
    """Load a kernel library with RTLD_LOCAL and read its table. It is never closed: hosts keep its pointers.

    Raises:
        MissingOperatorError: the file does not exist.
        CorruptFileError: it is no shared object or no kernel library.
        UnsupportedError: its ABI is not ours, or it refuses us.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise MissingOperatorError("kernel library not found", where=str(path), hint="run: opforge build PACKAGE")
    status = path.stat()
    identity = (path, status.st_ino, status.st_mtime_ns)
    if identity in _loaded:
        return _loaded[identity]
    try:
        shared = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise CorruptFileError("not a loadable shared object", where=str(path), got=str(error)) from None
    try:
        entry = shared.opforge_library_v1
    except AttributeError:
        expected = "the exported symbol opforge_library_v1"
        raise CorruptFileError(
            "not a kernel library", where=str(path), expected=expected, got="no such symbol"
        ) from None
    entry.restype = ctypes.c_void_p
    entry.argtypes = [ctypes.POINTER(abi.Host)]
    reason = ctypes.create_string_buffer(1024)
    table = entry(ctypes.byref(abi.new_host(reason)))
    if not table:
        raise UnsupportedError(
            "the library refuses this host", where=str(path), got=reason.value.decode("utf-8", "replace") or "no reason"
        )
    library = read_table(table, path)
    apply_stored(library)
    _loaded[identity] = library
    return library


def read_table(address: int, path: Path | None = None) -> LoadedLibrary:
    """Read the table at `address` into Python objects."""
    table = abi.Library.from_address(address)
    if table.abi != abi.ABI:
        raise UnsupportedError(
            "the library was built for another ABI",
            where=str(path),
            expected=f"ABI {abi.ABI}",
            got=f"ABI {table.abi}",
            hint="build the operator package again with this version of opforge",
        )
    operators = {}
    for i in range(table.n_operators):
        operator = _read_operator(ctypes.addressof(table.operators[i].contents))
        if operator.key in operators:
            raise OpforgeError(f"operator {operator.key} stands twice in the table", where=str(path))
        operators[operator.key] = operator
    return LoadedLibrary(
        path=path,
        table=address,
        id=table.id.decode(),
        version=table.version.decode(),
        content_hash=table.content_hash.decode(),
        build=table.build.decode(),
        architectures=tuple((table.architectures or b"").decode().split()),
        operators=operators,
    )


def _read_operator(address: int) -> LibraryOperator:
    raw = abi.Operator.from_address(address)
    return LibraryOperator(
        domain=raw.domain.decode(),
        name=raw.name.decode(),
        since_version=raw.since_version,
        flags=raw.flags,
        signature=raw.signature.decode(),
        types=raw.types.decode(),
        autocast=raw.autocast.decode(),
        gradient=raw.gradient.decode(),
        schema_hash=raw.schema_hash.decode(),
        kernels=tuple(_read_kernel(ctypes.addressof(raw.kernels[i].contents)) for i in range(raw.n_kernels)),
        address=address,
    )


def _read_kernel(address: int) -> LibraryKernel:
    raw = abi.Kernel.from_address(address)
    pairs = [raw.inplace[i] for i in range(raw.n_inplace)]  # input, output, input, output, ...
    return LibraryKernel(
        device_type=raw.device_type,
        flags=raw.flags,
        dtypes=tuple((raw.dtypes[i].code, raw.dtypes[i].bits) for i in range(raw.n_dtypes)),
        alignment=raw.alignment,
        run=raw.run or 0,
        data=raw.data or 0,
        inplace=tuple(zip(pairs[::2], pairs[1::2], strict=True)),
        address=address,
    )
