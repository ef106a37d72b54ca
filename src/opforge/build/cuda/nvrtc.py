"""NVIDIA's compiler as a library: formulas to machine code or PTX without nvcc, without g++, without a driver."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from opforge._paths import include_dir
from opforge.build.cache import Made, open_cache
from opforge.build.cuda.toolkit import toolkit_candidates
from opforge.codegen.cuda import kernel_source
from opforge.errors import BuildError, Candidate, ToolchainError
from opforge.schema import Operator

__all__ = ["Compiled", "Nvrtc", "compile_formula", "device_headers", "find_nvrtc"]

_HINT: Final = "pip install 'opforge[cuda]', or set CUDA_HOME"
# What our headers include and NVRTC does not have.
_HEADERS: Final = {
    "stdint.h": "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;\n"
    "typedef unsigned long long uint64_t; typedef unsigned long long uintptr_t;\n"
    "#define INT32_MAX 2147483647\n",
    "stddef.h": "",
    "math.h": "",
}


@dataclass(frozen=True)
class Compiled:
    """What came out.

    Attributes:
        image: machine code (for ``sm_80``) or PTX (for ``compute_80``).
        names: of the kernels in it, by their name in C++.
        words: what the compiler and ptxas said.
    """

    image: bytes
    names: dict[str, str]
    words: str


class Nvrtc:
    """The loaded library.

    Attributes:
        path: its file.
        version: such as "13.0".
        include_folders: of CUDA's headers.
    """

    def __init__(self, path: Path, include_folders: tuple[Path, ...]) -> None:
        """Load it, with the library of built-in functions that some versions do not find by themselves."""
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(0), c_int(0)
        self._check("nvrtcVersion", byref(major), byref(minor))
        self.path, self.version, self.include_folders = path, f"{major.value}.{minor.value}", include_folders

    def __str__(self) -> str:
        return f"NVRTC {self.version} ({self.path})"

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
        texts = (c_char_p * len(_HEADERS))(*(text.encode() for text in _HEADERS.values()))
        files = (c_char_p * len(_HEADERS))(*(name.encode() for name in _HEADERS))
        self._check("nvrtcCreateProgram", byref(program), source.encode(), where.encode(), len(_HEADERS), texts, files)
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
            image = self._text(program, "nvrtcGetCUBIN" if architecture.startswith("sm_") else "nvrtcGetPTX")
        finally:
            self._library.nvrtcDestroyProgram(byref(program))
        return Compiled(image, names, words)

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
    """Return NVRTC from the environment's packages or a toolkit.

    Raises:
        ToolchainError: there is none with CUDA's headers; each candidate is listed.
    """
    rejected = []
    for library in dict.fromkeys(_libraries()):
        include = library.parent.parent / "include"
        folders = tuple(f for f in (include, include / "cccl") if f.is_dir())
        missing = [name for name in ("cuda_fp16.h", "nv/target") if not any((f / name).is_file() for f in folders)]
        if missing:
            rejected.append(Candidate(str(library), f"{', '.join(missing)} is not in {include}"))
            continue
        try:
            return Nvrtc(library, folders)
        except (OSError, AttributeError, BuildError) as error:  # no library, of something else, or it fails at once
            rejected.append(Candidate(str(library), f"cannot be loaded: {error}"))
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


def device_headers() -> list[Path]:
    """Return every header of ours, for a kernel's source may include each."""
    return sorted(path for path in (include_dir() / "opforge").rglob("*") if path.is_file())


def compile_formula(operator: Operator, dtype: str, architecture: str) -> Compiled:
    """Return the kernels of a formula operator for one dtype and architecture, from the cache where they are there.

    Raises:
        ToolchainError: there is no NVRTC.
        BuildError: it refuses.
    """
    nvrtc = find_nvrtc()
    source, kernels = kernel_source(operator, dtype)
    headers = device_headers()
    parts = [str(nvrtc), *nvrtc.flags(architecture), source, *_HEADERS.values()]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def make(folder: Path) -> Made:
        compiled = nvrtc.compile(source, architecture, kernels, operator.key)
        path = folder / "image.so"
        head = json.dumps({"names": compiled.names, "words": compiled.words}).encode()
        path.write_bytes(len(head).to_bytes(8, "little") + head + compiled.image)
        return Made(path, headers, key)

    name = f"{operator.host_namespace}_{operator.host_name}_v{operator.since_version}_{dtype}_{architecture}"
    content = open_cache().built(name, key, make).read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    head = json.loads(content[8:size])
    return Compiled(content[size:], head["names"], head["words"])
