"""What ``opforge doctor`` shows of this installation: rows of state, and how to get what is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from opforge._environment import isa, thread_count
from opforge._paths import include_dir, library_dir, runtime_library
from opforge.build.cache import cache_dir
from opforge.build.cuda.builder import cuda_compiler, find_host_compiler
from opforge.build.cuda.launcher import find_launcher
from opforge.build.cuda.libraries import LIBRARIES, DeviceLibrary
from opforge.build.cuda.nvrtc import find_nvrtc
from opforge.build.cuda.toolkit import Misfit, find_toolkit
from opforge.build.cuda_driver import find_devices
from opforge.build.flags import default_profile
from opforge.build.jit import jit_mode
from opforge.build.toolchain import INSTALL_HINT, find_compiler
from opforge.errors import OpforgeError, ToolchainError

__all__ = ["DoctorRow", "doctor_rows"]


@dataclass(frozen=True)
class DoctorRow:
    """One finding.

    Attributes:
        name: what was looked at.
        state: "ok", "missing" (something does not work without it) or "optional" (absent, needed by some uses only).
        detail: what was found.
        hint: how to get it; "" where nothing is to do.
    """

    name: str
    state: str
    detail: str
    hint: str = ""


def doctor_rows() -> list[DoctorRow]:
    """Look at everything; never raises, imports no framework and loads no native library but libopforge."""
    rows = []
    for name, look in _LOOKS.items():
        try:
            rows.append(look())
        except OpforgeError as error:
            rows.append(DoctorRow(name, "missing", str(error), error.hint or ""))
        except Exception as error:  # a broken installation is what doctor is for
            rows.append(DoctorRow(name, "missing", f"{type(error).__name__}: {error}"))
    rows += [_package(*row) for row in _PACKAGES]
    return rows


def _python() -> DoctorRow:
    fits = sys.version_info >= (3, 11)
    text = f"{platform.python_version()} on {platform.machine()}, {os.cpu_count()} CPUs"
    return DoctorRow("python", "ok" if fits else "missing", text, "" if fits else "install Python >= 3.11")


def _compiler() -> DoctorRow:
    try:
        compiler = find_compiler()
    except OpforgeError as error:
        detail = f"{error.what}; formulas run by the interpreter, kernel operators do not run\n{error.got}"
        return DoctorRow("C++ compiler", "missing", detail, INSTALL_HINT)
    native = "" if compiler.native else "; -march=native does not work, kernels are built for the baseline"
    return DoctorRow("C++ compiler", "ok", f"{compiler}{native}")


def _headers() -> DoctorRow:
    path = include_dir() / "opforge" / "kernel.h"
    return _file("headers", path, "install opforge again")


def _runtime() -> DoctorRow:
    path = runtime_library()
    if not path.is_file():
        return _file("libopforge", path, "install opforge again, or in a source tree build it (make native)")
    from opforge.build.interpreter import runtime

    runtime()
    return DoctorRow("libopforge", "ok", str(path))


def _adapters() -> DoctorRow:
    found = sorted(p.name for p in library_dir().glob("lib*.so") if p != runtime_library())
    hint = "" if found else "install opforge again, or in a source tree build them (make native)"
    return DoctorRow("adapters", "ok" if found else "missing", ", ".join(found) or "none", hint)


def _cache() -> DoctorRow:
    folder = cache_dir()
    entries = len(list(folder.glob("v1/*/*.so"))) if folder.is_dir() else 0
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        hint = "set OPFORGE_CACHE to a folder that can be written; until then every process builds anew"
        return DoctorRow("build cache", "missing", f"{folder} cannot be written", hint)
    return DoctorRow("build cache", "ok", f"{folder}, {entries} libraries")


def _jit() -> DoctorRow:
    return DoctorRow("OPFORGE_JIT", "ok", jit_mode())


def _isa() -> DoctorRow:
    return DoctorRow("OPFORGE_ISA", "ok", isa() or "not set")


def _threads() -> DoctorRow:
    return DoctorRow("OPFORGE_NUM_THREADS", "ok", str(thread_count() or "not set"))


def _profile() -> DoctorRow:
    return DoctorRow("OPFORGE_PROFILE", "ok", default_profile())


def _library_path() -> DoctorRow:
    entries = [e for e in os.environ.get("OPFORGE_LIBRARY_PATH", "").split(os.pathsep) if e]
    bad = [e for e in entries if not Path(e).is_absolute() or not Path(e).is_dir()]
    if bad:
        detail = f"no absolute folder: {', '.join(bad)}"
        return DoctorRow("OPFORGE_LIBRARY_PATH", "missing", detail, "correct the variable")
    return DoctorRow("OPFORGE_LIBRARY_PATH", "ok", os.pathsep.join(entries) or "not set")


def _cuda() -> DoctorRow:
    try:
        toolkit = find_toolkit()
        host = find_host_compiler(toolkit)
    except ToolchainError as error:
        return DoctorRow("CUDA compiler", "optional", f"{error.what}\n{error.got}", error.hint or "")
    return _serves("CUDA compiler", f"{toolkit}, with {host.kind} {host.version}", toolkit.misfit, "install a toolkit")


def _serves(name: str, detail: str, misfit: Misfit | None, hint: str) -> DoctorRow:
    """Say whether what a compiler builds runs on this machine."""
    if misfit is None:
        return DoctorRow(name, "ok", detail)
    detail += f"\n{misfit.reason}: what it builds does not run on this machine"
    before = "update the driver, or " if misfit.by_driver else ""
    return DoctorRow(name, "optional", detail, f"{before}{hint} of {misfit.wanted}")


def _nvrtc() -> DoctorRow:
    try:
        nvrtc = find_nvrtc()
    except ToolchainError as error:
        return DoctorRow("NVRTC", "optional", f"{error.what}\n{error.got}", error.hint or "")
    return _serves("NVRTC", str(nvrtc), nvrtc.misfit, "install nvidia-cuda-nvrtc")


def _cuda_kernels() -> DoctorRow:
    """Say what compiles kernels for a GPU when they are first called."""
    wanted = cuda_compiler()
    by_nvcc, by_nvrtc = _cuda().state == "ok", _nvrtc().state == "ok"
    if by_nvcc and wanted != "nvrtc":
        return DoctorRow("CUDA kernels", "ok", "nvcc compiles them")
    if by_nvrtc and wanted != "nvcc":
        return DoctorRow(
            "CUDA kernels", "ok", f"NVRTC compiles formulas, {find_launcher()} launches them; no .cu source"
        )
    reason = "no compiler" if wanted == "auto" else f"OPFORGE_CUDA_COMPILER={wanted}, which is not there"
    return DoctorRow(
        "CUDA kernels", "optional", f"{reason}: only libraries built ahead run on a GPU", "pip install 'opforge[cuda]'"
    )


def _device_library(library: DeviceLibrary) -> DoctorRow:
    found = library.find()
    if found is not None:
        return DoctorRow(library.name, "ok", str(found))
    return DoctorRow(library.name, "optional", f"no {' or '.join(library.files)} ({library.use})", library.hint)


def _gpu() -> DoctorRow:
    found = find_devices()
    if not found.devices:
        return DoctorRow(
            "GPU", "optional", found.reason, "CUDA kernels are checked without one: --device cuda-emulated"
        )
    rows = [f"{d.name}, sm_{d.architecture}, {d.memory >> 20} MiB, driver for CUDA {d.driver}" for d in found.devices]
    return DoctorRow("GPU", "ok", "\n".join(rows))


_LOOKS: dict[str, Callable[[], DoctorRow]] = {
    "python": _python,
    "C++ compiler": _compiler,
    "CUDA compiler": _cuda,
    "NVRTC": _nvrtc,
    "CUDA kernels": _cuda_kernels,
    **{library.name: partial(_device_library, library) for library in LIBRARIES},
    "GPU": _gpu,
    "headers": _headers,
    "libopforge": _runtime,
    "adapters": _adapters,
    "build cache": _cache,
    "OPFORGE_JIT": _jit,
    "OPFORGE_PROFILE": _profile,
    "OPFORGE_ISA": _isa,
    "OPFORGE_NUM_THREADS": _threads,
    "OPFORGE_LIBRARY_PATH": _library_path,
}

# Distribution, module, oldest version that serves, what it is for, how to get it.
_PACKAGES = (
    ("numpy", "numpy", (1, 26), "always", "pip install numpy"),
    ("onnx", "onnx", (1, 19), "always", "pip install onnx"),
    ("torch", "torch", (2, 10), "training in PyTorch, export", "pip install 'opforge[torch]'"),
    ("tensorflow", "tensorflow", (2, 18), "training in TensorFlow", "pip install 'opforge[tensorflow]'"),
    ("jax", "jax", (0, 6), "training in JAX", "pip install 'opforge[jax]'"),
    ("ncnn", "ncnn", (1, 0), "running models in ncnn", "pip install 'opforge[ncnn]'"),
    ("onnxruntime", "onnxruntime", (1, 20), "running models in ONNX Runtime", "pip install 'opforge[onnxruntime]'"),
    ("ai-edge-litert", "ai_edge_litert", (2, 2), "running models in LiteRT", "pip install 'opforge[litert]'"),
    ("openvino", "openvino", (2025, 0), "running models in OpenVINO", "pip install 'opforge[openvino]'"),
    ("executorch", "executorch", (1, 5), "lowering and running .pte files", "pip install 'opforge[executorch]'"),
    ("tensorrt", "tensorrt", (10, 0), "building and running engines of TensorRT", "pip install tensorrt"),
)


def _package(name: str, module: str, oldest: tuple[int, int], use: str, hint: str) -> DoctorRow:
    absent = "missing" if use == "always" else "optional"
    if find_spec(module) is None:
        return DoctorRow(name, absent, f"not installed ({use})", hint)
    version = _version(name) or _version(f"{name}-cpu")
    if version is None:
        return DoctorRow(name, "ok", "version unknown")
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    if numbers < oldest:
        wanted = ".".join(map(str, oldest))
        return DoctorRow(name, "missing", f"{version} is older than {wanted} ({use})", f"{hint} --upgrade")
    return DoctorRow(name, "ok", version)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _file(name: str, path: Path, hint: str) -> DoctorRow:
    if path.is_file():
        return DoctorRow(name, "ok", str(path))
    return DoctorRow(name, "missing", f"{path} does not exist", hint)
