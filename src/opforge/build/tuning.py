"""What `opforge tune` measured, kept in the cache, and handed to the kernels of a library when it is loaded.

A file per kind of device and driver, ``tuning/v1/<device>-<driver>.json`` under the cache folder, with a row per
operator, content of its library, dtypes and class of size (``opforge/cuda/tuning.h``). Kernels read what stands in the
``opforge_tuning`` behind ``opforge_kernel.data``, which has a row per device of the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from ctypes import c_int32, c_uint32
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opforge._files import whole_file
from opforge.build import abi, cuda_driver
from opforge.build.cache import cache_dir
from opforge.errors import ArgumentError, InternalError
from opforge.schema.dtypes import DType

if TYPE_CHECKING:
    from opforge.build.library import LibraryKernel, LibraryOperator, LoadedLibrary

__all__ = [
    "CLASSES",
    "DEVICES",
    "Choice",
    "apply_stored",
    "library_used",
    "load_choices",
    "require_writable",
    "row_name",
    "set_choice",
    "size_class",
    "store_choices",
    "tuning_file",
]

CLASSES: Final = 8
DEVICES: Final = 16
"""Of a process, from the first on, for which choices can be kept."""
_LAYOUT: Final = "v1"


@dataclass(frozen=True)
class Choice:
    """How a kernel is launched; 0 = as the kernel itself thinks best.

    Attributes:
        threads: of a block.
        items: elements, or vectors of them, that a thread takes one after the other.
        variant: 1, 2, ...: the operator's variants in the order in which its cases name them.
        library: the version of NVIDIA's library that the variant called when it was measured, as of `library_used`.
    """

    threads: int = 0
    items: int = 0
    variant: int = 0
    library: int = 0

    @property
    def own(self) -> bool:
        """Whether it leaves everything to the kernel."""
        return not (self.threads or self.items or self.variant)


class _Choice(ctypes.Structure):
    _fields_ = (("threads", c_int32), ("items", c_int32), ("variant", c_int32), ("optional", c_int32))


class _Tuning(ctypes.Structure):
    _fields_ = (("size", c_uint32), ("count", c_uint32), ("choices", _Choice * CLASSES * DEVICES), ("library", c_int32))


def size_class(elements: int) -> int:
    """Return the class of a call whose tensors, inputs and outputs, have so many elements together."""
    bits = max(elements, 1).bit_length() - 1
    return 0 if bits < 12 else min((bits - 12) // 3 + 1, CLASSES - 1)


def set_choice(
    kernel: LibraryKernel, klass: int, choice: Choice, device: int | None = None, *, optional: bool = False
) -> None:
    """Let a kernel of a CUDA library use this choice for calls of a class from now on; no call may be under way.

    Args:
        kernel: of a CUDA library.
        klass: of size.
        choice: how it is launched.
        device: the number of a device in this process; None = on all.
        optional: where the variant is not to be had (its library is not here, or another version than it was measured
            with), the kernel's own ways serve, as a choice that was stored some day should; otherwise that is the
            call's error.

    Raises:
        InternalError: the kernel cannot be tuned, or there is no such class.
    """
    table = _table(kernel)
    if table is None or not 0 <= klass < CLASSES:
        raise InternalError("a kernel without a table of choices", where="set_choice", got=f"class {klass}")
    required = max(1, choice.library) if optional else 0
    for number in range(DEVICES) if device is None else (device,):
        table.choices[number][klass] = _Choice(choice.threads, choice.items, choice.variant, required)
    table.count = sum(any((c.threads, c.items, c.variant)) for row in table.choices for c in row)


def library_used(kernel: LibraryKernel) -> int:
    """Return the version of NVIDIA's library that calls used since this was asked last, 0 where they used none.

    Calls whose choice is optional are not counted. 12.5.10 is 12005010.
    """
    table = _table(kernel)
    if table is None:
        return 0
    version = table.library
    table.library = 0
    return int(version)


def _table(kernel: LibraryKernel) -> _Tuning | None:
    if kernel.device_type != abi.DEVICE_CUDA or not kernel.data:
        return None
    table = _Tuning.from_address(kernel.data)
    return table if table.size == ctypes.sizeof(_Tuning) else None


def tuning_file(device: str, driver: str) -> Path:
    """Return the file that holds what was measured on devices of this name under this driver."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "device"
    return cache_dir() / "tuning" / _LAYOUT / f"{slug}-{driver}.json"


def row_name(operator: LibraryOperator, kernel: LibraryKernel, content: str, klass: int) -> str:
    """Return the name of a row: what the measured times depend on, besides device and driver."""
    dtypes = ",".join(DType.from_dlpack(*pair).name for pair in kernel.dtypes)
    return f"{operator.key}|{operator.schema_hash}|{content}|{dtypes}|{klass}"


def load_choices(path: Path) -> dict[str, Choice]:
    """Read a file of choices; what is damaged counts as not measured, with a warning."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: _choice(row["choice"]) for name, row in content["rows"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        warnings.warn(
            f"{path} is no record of tuning ({error}); kernels run untuned: run `opforge tune` again, or remove it",
            RuntimeWarning,
            stacklevel=2,
        )
        return {}


def _choice(row: Mapping[str, Any]) -> Choice:
    values = [row["threads"], row["items"], row["variant"], row.get("library", 0)]
    if any(type(v) is not int or not 0 <= v < 2**31 for v in values) or values[0] > 1024:
        raise ValueError(f"no such choice: {row}")
    return Choice(*values)


def store_choices(device: str, driver: str, rows: Iterable[tuple[str, Choice, Mapping[str, Any]]]) -> Path:
    """Add rows (name, choice, what was measured) to the file of a device; readers see the old file or the new one.

    Returns:
        The file.

    Raises:
        ArgumentError: it cannot be written.
    """
    path = tuning_file(device, driver)
    with _locked(path), whole_file(path) as temporary:
        try:
            known = json.loads(path.read_text(encoding="utf-8"))["rows"]
            known = dict(known) if isinstance(known, dict) else {}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            known = {}
        for name, choice, measured in rows:
            known[name] = {"choice": asdict(choice), **measured}
        text = json.dumps({"device": device, "driver": driver, "rows": known}, indent=1, sort_keys=True)
        temporary.write_text(text + "\n", encoding="utf-8")
    return path


def require_writable(device: str, driver: str) -> Path:
    """Return the file of a device after seeing that it can be written; to be asked before minutes of measuring.

    Raises:
        ArgumentError: it cannot.
    """
    path = tuning_file(device, driver)
    with _locked(path):
        tempfile.TemporaryFile(dir=path.parent).close()
    return path


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock beside a file of choices: two tuners at once lose none of each other's rows."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
    except OSError as error:
        raise ArgumentError(
            "what is measured cannot be kept",
            where=str(path),
            expected="a folder that can be written, with room in it",
            got=error,
            hint="name one in OPFORGE_CACHE, or mend this one's permissions",
        ) from error


def apply_stored(library: LoadedLibrary) -> int:
    """Hand the choices stored for this machine's devices to the kernels of a library; return how many there were.

    Each device gets those of its own kind. The driver is asked for them only where something has been measured here
    at all.
    """
    kernels = [(o, k) for o in library.operators.values() for k in o.kernels if _table(k) is not None]
    if not kernels or not any((cache_dir() / "tuning" / _LAYOUT).glob("*.json")):
        return 0
    devices = cuda_driver.find_devices().devices[:DEVICES]
    files = {device: tuning_file(device.name, device.driver) for device in devices}
    stored = {file: load_choices(file) for file in set(files.values())}
    count = 0
    for operator, kernel in kernels if any(stored.values()) else ():
        names = [row_name(operator, kernel, library.content_hash, klass) for klass in range(CLASSES)]
        for device, file in files.items():
            for klass, name in enumerate(names):
                choice = stored[file].get(name)
                if choice is not None:
                    set_choice(kernel, klass, choice, device.ordinal, optional=True)
                    count += 1
    return count
