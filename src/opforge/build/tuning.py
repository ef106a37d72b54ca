"""What `opforge tune` measured, kept in the cache, and handed to the kernels of a library when it is loaded.

A file per device and driver, ``tuning/v1/<device>-<driver>.json`` under the cache folder, with a row per operator,
content of its library, dtypes and class of size (``opforge/cuda/tuning.h``). Kernels read what stands in the
``opforge_tuning`` behind ``opforge_kernel.data``.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from ctypes import c_int32, c_uint32
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opforge._files import whole_file
from opforge.build import abi, cuda_driver
from opforge.build.cache import cache_dir
from opforge.errors import InternalError
from opforge.schema.dtypes import DType

if TYPE_CHECKING:
    from opforge.build.library import LibraryKernel, LibraryOperator, LoadedLibrary

__all__ = [
    "CLASSES",
    "Choice",
    "apply_stored",
    "load_choices",
    "row_name",
    "set_choice",
    "size_class",
    "store_choices",
    "tuning_file",
]

CLASSES: Final = 8
_LAYOUT: Final = "v1"


@dataclass(frozen=True)
class Choice:
    """How a kernel is launched; 0 = as the kernel itself thinks best.

    Attributes:
        threads: of a block.
        items: elements, or vectors of them, that a thread takes one after the other.
        variant: 1, 2, ...: the operator's variants in the order in which its cases name them.
    """

    threads: int = 0
    items: int = 0
    variant: int = 0


class _Choice(ctypes.Structure):
    _fields_ = (("threads", c_int32), ("items", c_int32), ("variant", c_int32), ("reserved", c_int32))


class _Tuning(ctypes.Structure):
    _fields_ = (("size", c_uint32), ("count", c_uint32), ("choices", _Choice * CLASSES))


def size_class(elements: int) -> int:
    """Return the class of a call whose tensors, inputs and outputs, have so many elements together."""
    bits = max(elements, 1).bit_length() - 1
    return 0 if bits < 12 else min((bits - 12) // 3 + 1, CLASSES - 1)


def set_choice(kernel: LibraryKernel, klass: int, choice: Choice) -> None:
    """Let a kernel of a CUDA library use this choice for calls of a class from now on; no call may be under way.

    Raises:
        InternalError: the kernel cannot be tuned, or there is no such class.
    """
    table = _table(kernel)
    if table is None or not 0 <= klass < CLASSES:
        raise InternalError("a kernel without a table of choices", where="set_choice", got=f"class {klass}")
    table.choices[klass] = _Choice(choice.threads, choice.items, choice.variant, 0)
    table.count = sum(any((c.threads, c.items, c.variant)) for c in table.choices)


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
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(
            f"{path} is no record of tuning ({error}); kernels run untuned: run `opforge tune` again, or remove it",
            RuntimeWarning,
            stacklevel=2,
        )
        return {}


def _choice(row: Mapping[str, Any]) -> Choice:
    values = [row["threads"], row["items"], row["variant"]]
    if any(type(v) is not int or not 0 <= v < 2**31 for v in values) or values[0] > 1024:
        raise ValueError(f"no such choice: {row}")
    return Choice(*values)


def store_choices(device: str, driver: str, rows: Iterable[tuple[str, Choice, Mapping[str, Any]]]) -> Path:
    """Add rows (name, choice, what was measured) to the file of a device; readers see the old file or the new one.

    Returns:
        The file.
    """
    path = tuning_file(device, driver)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # two tuners at once: neither loses the other's rows
        try:
            known = json.loads(path.read_text(encoding="utf-8"))["rows"]
            known = dict(known) if isinstance(known, dict) else {}
        except (OSError, ValueError, KeyError, TypeError):
            known = {}
        for name, choice, measured in rows:
            known[name] = {"choice": asdict(choice), **measured}
        with whole_file(path) as temporary:
            text = json.dumps({"device": device, "driver": driver, "rows": known}, indent=1, sort_keys=True)
            temporary.write_text(text + "\n", encoding="utf-8")
    finally:
        os.close(handle)
    return path


def apply_stored(library: LoadedLibrary) -> int:
    """Hand the choices stored for this machine's device to the kernels of a library; return how many there were.

    The driver is asked for the device only where something has been measured here at all. With several devices those
    of the first one count: choices change times, never results.
    """
    kernels = [(o, k) for o in library.operators.values() for k in o.kernels if _table(k) is not None]
    if not kernels or not any((cache_dir() / "tuning" / _LAYOUT).glob("*.json")):
        return 0
    devices = cuda_driver.find_devices().devices
    if not devices:
        return 0
    stored = load_choices(tuning_file(devices[0].name, devices[0].driver))
    count = 0
    for operator, kernel in kernels if stored else ():
        for klass in range(CLASSES):
            choice = stored.get(row_name(operator, kernel, library.content_hash, klass))
            if choice is not None:
                set_choice(kernel, klass, choice)
                count += 1
    return count
