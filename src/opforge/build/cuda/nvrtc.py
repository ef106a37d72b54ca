"""NVIDIA's compiler as a library: formulas to machine code or PTX without nvcc, without g++, without a driver."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from opforge._paths import include_dir
from opforge.build.cache import Made, open_cache
from opforge.build.cuda.toolkit import Misfit, misfit, toolkit_candidates
from opforge.codegen.cuda import formula_kernels
from opforge.errors import BuildError, Candidate, ToolchainError
from opforge.schema.dtypes import DType
from opforge.schema.operator import Operator

__all__ = ["Compiled", "Nvrtc", "compile_formula", "device_headers", "find_nvrtc"]

_HINT: Final = "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime, or set CUDA_HOME"
_OLDEST: Final = (12, 0)
_READ: Final = ("fp16.h", "fp16.hpp", "bf16.h", "bf16.hpp")
# What our headers include and NVRTC does not have.
_HEADERS: Final = {
    "stdint.h": "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;\n"
    "typedef unsigned long long uint64_t; typedef unsigned long long uintptr_t;\n"
    "#define INT32_MAX 2147483647\n",
    "stddef.h": "",
    "math.h": "",
}
# nv/target for those who have CUDA's headers but not CCCL's, as PyTorch's packages bring them: all that cuda_fp16.h and
# cuda_bf16.h ask it.
_SELECTED: Final = (53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121)
_TARGET: Final = "\n".join(
    [
        "#pragma once",
        "#define OPFORGE_NV_IS_DEVICE 1",
        "#define OPFORGE_NV_IS_HOST 0",
        *(
            f"#if __CUDA_ARCH__ >= {number}0\n#define OPFORGE_NV_PROVIDES_SM_{number} 1\n"
            f"#else\n#define OPFORGE_NV_PROVIDES_SM_{number} 0\n#endif"
            for number in _SELECTED
        ),
        "#define OPFORGE_ALL(...) __VA_ARGS__",
        "#define OPFORGE_TAKE_1(yes, no) OPFORGE_ALL yes",
        "#define OPFORGE_TAKE_0(yes, no) OPFORGE_ALL no",
        "#define OPFORGE_TAKE(which, yes, no) OPFORGE_TAKE_##which(yes, no)",
        "#define OPFORGE_SELECT(which, yes, no) OPFORGE_TAKE(which, yes, no)",
        "#define NV_IF_ELSE_TARGET(condition, yes, no) OPFORGE_SELECT(OPFORGE_##condition, yes, no)",
        "#define NV_IF_TARGET(condition, yes) OPFORGE_SELECT(OPFORGE_##condition, yes, ())",
        "",
    ]
)


@dataclass(frozen=True)
class Compiled:
    """What came out.

    Attributes:
        image: machine code (for ``sm_80``) or PTX (for ``compute_80``).
        names: of the kernels in it, by their name in C++.
        words: what the compiler and ptxas said.
        ptx: for the same architecture, ended by a zero.
    """

    image: bytes
    names: dict[str, str]
    words: str
    ptx: bytes = b""


class Nvrtc:
    """The loaded library.

    Attributes:
        path: its file.
        version: such as "13.0".
        include_folders: of CUDA's headers.
        headers: those that it is handed, by name.
    """

    headers: Mapping[str, str] = MappingProxyType(_HEADERS)

    def __init__(self, path: Path, include_folders: tuple[Path, ...]) -> None:
        """Load it, with the library of built-in functions that some versions do not find by themselves."""
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(0), c_int(0)
        self._check("nvrtcVersion", byref(major), byref(minor))
        self.path, self.version, self.include_folders = path, f"{major.value}.{minor.value}", include_folders
        has_target = any((folder / "nv" / "target").is_file() for folder in include_folders)
        self.headers = _HEADERS if has_target else {**_HEADERS, "nv/target": _TARGET}

    def __str__(self) -> str:
        return f"NVRTC {self.version} ({self.path})"

    @property
    def identity(self) -> str:
        """Return what a cached result depends on: a package may be replaced in place by another of its version."""
        read = (folder / f"cuda_{name}" for folder in self.include_folders for name in _READ)
        places = (self.path, *sorted(self.path.parent.glob("libnvrtc-builtins.so*")), *read)
        return "\n".join([str(self), *(f"{place}:{place.stat().st_size}" for place in places if place.is_file())])

    @property
    def release(self) -> tuple[int, int]:
        """Return major and minor version."""
        major, minor = map(int, self.version.split("."))
        return major, minor

    @property
    def misfit(self) -> Misfit | None:
        """Return why what it compiles does not run on this machine."""
        return misfit(self.release, self.architectures)

    def architectures(self) -> tuple[str, ...]:
        """Return those that it compiles for, as ``sm_80``."""
        count = c_int(0)
        self._check("nvrtcGetNumSupportedArchs", byref(count))
        numbers = (c_int * count.value)()
        self._check("nvrtcGetSupportedArchs", numbers)
        return tuple(f"sm_{number}" for number in numbers)

    def flags(self, architecture: str) -> list[str]:
        """Return those that a kernel is compiled with."""
        flags = [f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", "-fmad=false"]
        return [*flags, "--ptxas-options=-v", f"-I{include_dir()}", *(f"-I{f}" for f in self.include_folders)]

    def compile(self, source: str, architecture: str, kernels: Sequence[str], where: str) -> Compiled:
        """Compile a source for one architecture, ``sm_80`` or, to PTX, ``compute_80``.

        Args:
            source: CUDA C++ for the device.
            architecture: what for.
            kernels: names in C++ of what must be in it, instances of templates too.
            where: the operator, for errors.

        Raises:
            BuildError: it refuses; the message carries its words.
        """
        program = c_void_p()
        count = len(self.headers)
        texts = (c_char_p * count)(*(text.encode() for text in self.headers.values()))
        files = (c_char_p * count)(*(name.encode() for name in self.headers))
        self._check("nvrtcCreateProgram", byref(program), source.encode(), where.encode(), count, texts, files)
        try:
            for kernel in kernels:
                self._check("nvrtcAddNameExpression", program, kernel.encode())
            flags = self.flags(architecture)
            options = (c_char_p * len(flags))(*(flag.encode() for flag in flags))
            status = self._library.nvrtcCompileProgram(program, len(flags), options)
            words = self._text(program, "nvrtcGetProgramLog").rstrip(b"\0").decode("utf-8", "replace")
            if status != 0:
                said = self._library.nvrtcGetErrorString(status).decode()
                raise BuildError("NVRTC refuses the kernel", where=where, got=f"from {self}: {said}\n{words.strip()}")
            names = {}
            for kernel in kernels:
                lowered = c_char_p()
                self._check("nvrtcGetLoweredName", program, kernel.encode(), byref(lowered))
                names[kernel] = (lowered.value or b"").decode()
            ptx = self._text(program, "nvrtcGetPTX")
            image = self._text(program, "nvrtcGetCUBIN") if architecture.startswith("sm_") else ptx
        finally:
            self._library.nvrtcDestroyProgram(byref(program))
        return Compiled(image, names, words, ptx)

    def _text(self, program: c_void_p, function: str) -> bytes:
        size = c_size_t(0)
        self._check(f"{function}Size", program, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(function, program, buffer)
        return buffer.raw

    def _check(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            said = self._library.nvrtcGetErrorString(status).decode()
            raise BuildError("NVRTC fails", where=function, got=f"{said} ({status})")


@cache
def find_nvrtc() -> Nvrtc:
    """Return NVRTC from the environment's packages or a toolkit; one that fits this machine goes first.

    Raises:
        ToolchainError: there is none with CUDA's headers; each candidate is listed.
    """
    rejected = []
    unfit: list[Nvrtc] = []
    for library in dict.fromkeys(_libraries()):
        folders = tuple(folder for folder in _folders(library) if folder.is_dir())
        if not any((folder / "cuda_fp16.h").is_file() for folder in folders):
            rejected.append(Candidate(str(library), f"cuda_fp16.h is not in {_folders(library)[0]}"))
            continue
        try:
            found = Nvrtc(library, folders)
        except (OSError, AttributeError, BuildError) as error:  # no library, of something else, or it fails at once
            rejected.append(Candidate(str(library), f"cannot be loaded: {error}"))
            continue
        if found.release < _OLDEST:
            rejected.append(Candidate(str(library), f"NVRTC {found.version} is too old"))
        elif found.misfit is None:
            return found
        else:
            unfit.append(found)
    if unfit:  # what they compile may still be for another machine
        return unfit[0]
    rows = "".join(f"\n    {c.name}: {c.reason}" for c in rejected) or " no libnvrtc.so anywhere"
    raise ToolchainError(
        "there is no NVRTC", expected="libnvrtc.so, of CUDA 12 or newer", got=f"candidates:{rows}", hint=_HINT
    )


def _libraries() -> Iterator[Path]:
    for entry in sys.path:
        yield from sorted(Path(entry or ".").glob("nvidia/cu*/lib/libnvrtc.so.*"), reverse=True)
    for _, root in toolkit_candidates():
        for folder in ("lib64", "lib"):
            yield from sorted((root / folder).glob("libnvrtc.so.*"), reverse=True)


def _folders(library: Path) -> tuple[Path, ...]:
    """Give the folders in which headers may lie, of a toolkit or of NVIDIA's packages: one per part before CUDA 13."""
    root = library.parent.parent
    roots = (root / "include", *sorted(root.glob("targets/*/include")))  # the second is conda's
    parts = (root.parent / part / "include" for part in ("cuda_runtime", "cuda_cccl"))
    return (*roots, *(include / "cccl" for include in roots), *parts)


def device_headers() -> list[Path]:
    """Return every header of ours, for a kernel's source may include each."""
    return sorted(path for path in (include_dir() / "opforge").rglob("*") if path.is_file())


def compile_formula(operator: Operator, dtype: str, architecture: str) -> Compiled:
    """Return the kernels of a formula operator for one dtype and architecture, from the cache where they are there.

    Args:
        operator: the operator.
        dtype: of its type variable, "" where it has none.
        architecture: ``sm_80``, or for PTX alone ``compute_80``.

    Raises:
        ToolchainError: there is no NVRTC.
        BuildError: it refuses.
    """
    nvrtc = find_nvrtc()
    kernels = formula_kernels(operator, (DType.parse(dtype),) if dtype else ())
    headers = device_headers()
    parts = [nvrtc.identity, *nvrtc.flags(architecture), kernels.source, *kernels.names, *nvrtc.headers.values()]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def make(folder: Path) -> Made:
        compiled = nvrtc.compile(kernels.source, architecture, kernels.names, operator.key)
        path = folder / "image.so"
        facts = {"names": compiled.names, "words": compiled.words, "image": len(compiled.image)}
        head = json.dumps(facts).encode()
        path.write_bytes(len(head).to_bytes(8, "little") + head + compiled.image + compiled.ptx)
        return Made(path, headers, key)

    name = f"{operator.host_namespace}_{operator.host_name}_v{operator.since_version}_{dtype}_{architecture}"
    content = open_cache().built(name, key, make).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    facts = json.loads(content[8:start])
    end = start + facts["image"]
    return Compiled(content[start:end], facts["names"], facts["words"], content[end:])
