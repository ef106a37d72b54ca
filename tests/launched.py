"""Libraries that NVRTC would compile, with kernels that the CPU runs behind a fake driver, for tests without a GPU."""

from __future__ import annotations

import ctypes
import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import opforge as of
from opforge.build import LoadedLibrary, load_library
from opforge.build.cache import cache_dir, file_hash
from opforge.build.cuda import launcher
from opforge.build.cuda.builder import cuda_plan
from opforge.build.plan import LibraryPlan, plan_library
from opforge.schema.dtypes import DType
from tools.device_check import prebuilt
from tools.device_check.emulated_images import use_emulated_nvrtc

__all__ = ["Seen", "bend", "bent", "build", "fresh", "gate", "plan", "seen", "use_fake_driver"]


@of.formula("test.launched::Gate")
def gate(x, w, *, slope: float = 0.5):
    """Broadcast, so that gradients are sums."""
    return of.where(x > w, of.tanh(x * w), slope * x)


@of.formula("test.launched::Bend", dtypes=["f32"], differentiable=False)
def bend(x, *, slope: float = 0.5):
    """One input, for hosts' fakes."""
    return of.where(x > 0, of.tanh(x), slope * x)


# Each takes seconds to compile for the emulator, and the launcher is the same for all.
_DTYPES = {gate.key: ("f32",), gate.gradient_operator.key: ("f32", "f64")}


class Seen(ctypes.Structure):
    """What the fake driver saw: counts, the last launch, and what the image that was loaded last is for."""

    _fields_ = (
        ("loads", ctypes.c_int64),
        ("launches", ctypes.c_int64),
        ("device", ctypes.c_int),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("stream", ctypes.c_void_p),
        ("architecture", ctypes.c_char * 16),
    )


def use_fake_driver(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the launcher ask the fake driver, and return its file."""
    folder = cache_dir() / f"fake_driver-{file_hash(Path(prebuilt.__file__).with_name('fake_driver.cpp'))[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    path = prebuilt.build_fake_driver(folder)
    monkeypatch.setenv("OPFORGE_CUDA_DRIVER", str(path))
    return path


def seen(driver: Path) -> Seen:
    """Give what the fake driver of this process saw."""
    return Seen.in_dll(ctypes.CDLL(str(driver)), "opforge_fake_seen")


def plan() -> LibraryPlan:
    """Plan the library of `gate` and its gradient."""
    whole = cuda_plan(plan_library([gate]))
    return replace(whole, operators=tuple(one for one in whole.operators if one.key in _DTYPES))


def build(monkeypatch: pytest.MonkeyPatch, *architectures: str) -> Path:
    """Build the library with the emulator in NVRTC's place."""
    use_emulated_nvrtc(monkeypatch.setattr)
    choices = {key: [(DType.parse(name),) for name in names] for key, names in _DTYPES.items()}
    monkeypatch.setattr(launcher, "dtype_choices", lambda operator: iter(choices[operator.key]))
    return launcher.build_with_nvrtc(plan(), architectures=architectures or ("sm_90",))


def bent(monkeypatch: pytest.MonkeyPatch, folder: Path, devices: int = 8) -> tuple[LoadedLibrary, Path]:
    """Load a library of `bend` with a fake driver that has so many devices; return both."""
    driver = use_fake_driver(monkeypatch)
    monkeypatch.setenv("OPFORGE_FAKE_DEVICES", str(devices))
    use_emulated_nvrtc(monkeypatch.setattr)
    path = launcher.build_with_nvrtc(cuda_plan(plan_library([bend])), architectures=("sm_90",))
    return fresh(path, folder), driver


_numbers = itertools.count()


def fresh(path: Path, folder: Path) -> LoadedLibrary:
    """Load a copy of a library: it has loaded no kernel yet, and asked for no driver."""
    return load_library(shutil.copy(path, folder / f"copy_{next(_numbers)}.so"))
