"""PTX of a kernel's source, by nvcc; kept in the build cache."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from opforge import _paths
from opforge.build.cache import cache_dir
from opforge.build.cuda.builder import find_host_compiler, nvcc_compiler
from opforge.build.cuda.nvrtc import device_headers
from opforge.build.cuda.toolkit import find_toolkit
from opforge.errors import BuildError, ToolchainError

__all__ = ["compile_ptx"]

# Newer GPUs take compute_80 too; the driver compiles it for the one that is there.
_FLAGS: Final = ("-std=c++17", "-O3", "-ptx", "-arch=compute_80", "-fmad=false")


def compile_ptx(source: str) -> str:
    """Compile a unit of CUDA C++ to PTX.

    Raises:
        ToolchainError: there is no nvcc, or no C++ compiler that it takes.
        BuildError: nvcc refuses the source.
    """
    toolkit = find_toolkit()
    compiler = nvcc_compiler(toolkit, find_host_compiler(toolkit))
    flags = (*_FLAGS, f"-I{_paths.include_dir()}")
    texts = [compiler.identity, *flags, source]
    parts = [*(text.encode() for text in texts), *(header.read_bytes() for header in device_headers())]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
    done = cache_dir() / "v1" / "ptx" / f"{digest}.ptx"
    if done.is_file():
        return done.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="opforge-ptx-") as name:
        unit, made = Path(name) / "entry.cu", Path(name) / "entry.ptx"
        unit.write_text(source, encoding="utf-8")
        command = [*compiler.command, *flags, str(unit), "-o", str(made)]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise ToolchainError(
                "nvcc does not run any more", where=str(toolkit), got=error, hint="install the toolkit again"
            ) from error
        if ran.returncode != 0:
            raise BuildError("nvcc refuses the kernel", where=source.splitlines()[0], got=ran.stderr.strip()[:4000])
        text = made.read_text(encoding="utf-8")
    _keep(done, text)
    return text


def _keep(path: Path, text: str) -> None:
    from opforge._files import whole_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError:
        return  # a cache that cannot be written costs time only
