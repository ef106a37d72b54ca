"""The library of tests/data/device_library.c for a device, and what its kernel noted, for tests of hosts without a GPU.

"CUDA" memory is the host's here: a fake of a host's API hands it out, and a number that is no stream.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from opforge.build.plan import LibraryPlan
from opforge.cuda import emulate_operators

ROOT = Path(__file__).parents[1]
STREAM = 0x5EA1
"""What fakes give as the stream."""


class Notes(ctypes.Structure):
    """What the kernel saw of its last call."""

    _fields_ = (
        ("calls", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
        *((f"{of}_{what}", ctypes.c_int64) for of in ("context", "input", "output") for what in ("type", "device")),
        ("scratch", ctypes.c_void_p),
        ("aligned_scratch", ctypes.c_void_p),
        ("fail", ctypes.c_int64),
    )


def build(folder: Path, device: int) -> Path:
    """Compile the library for a device."""
    path = folder / f"libdevice_{device}.so"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-O1", "-fPIC", "-shared"]
    source = ROOT / "tests" / "data" / "device_library.c"
    subprocess.run(
        ["cc", *flags, f"-DDEVICE={device}", f"-I{ROOT / 'include'}", str(source), "-o", str(path)], check=True
    )
    return path


def notes(path: Path) -> Notes:
    """Give the notes of a library."""
    return Notes.in_dll(ctypes.CDLL(str(path)), "opforge_test_notes")


def check(seen: Notes, device: int, scratch: set[int]) -> None:
    """Hold the notes of a call on a GPU against what the fake gave."""
    assert seen.stream == STREAM
    for part in ("context", "input", "output"):
        assert (getattr(seen, f"{part}_type"), getattr(seen, f"{part}_device")) == (2, device), part
    assert seen.scratch in scratch
    assert any(start <= seen.aligned_scratch < start + 8192 for start in scratch)
    assert seen.aligned_scratch % 4096 == 0


def emulate_builds(monkeypatch) -> list[str]:
    """Have CUDA libraries built for the emulator instead of by nvcc; the list collects what was built."""
    built: list[str] = []

    def build_cuda_library(plan: LibraryPlan) -> Path:
        built.append(plan.name)
        return emulate_operators(plan.operators).path

    replace_builder(monkeypatch, build_cuda_library)
    return built


def replace_builder(monkeypatch, function) -> None:
    """Put a function in the place of what builds with nvcc."""
    monkeypatch.setattr("opforge.build.device.build_cuda_library", function)
