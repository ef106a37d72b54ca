"""NVIDIA's libraries that variants of kernels call, and where they would be found: what `opforge doctor` shows.

Kernel libraries open them themselves, in the same order (``opforge/cuda/library.h``); nothing is opened here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["LIBRARIES", "DeviceLibrary"]


@dataclass(frozen=True)
class DeviceLibrary:
    """One library.

    Attributes:
        name: for people.
        files: by preference.
        variable: of the environment: the file to take instead.
        packages: what pip installs, by version of CUDA.
        use: what it is for.
    """

    name: str
    files: tuple[str, ...]
    variable: str
    packages: str
    use: str

    @property
    def hint(self) -> str:
        """Return how to get it."""
        return f"pip install {self.packages}, or name the file in {self.variable}"

    def find(self) -> Path | None:
        """Return the file that a kernel library would open in this environment, None where there is none."""
        named = os.environ.get(self.variable)
        if named:
            return Path(named) if Path(named).is_file() else None
        return next((path for path in self._places() if path.is_file()), None)

    def _places(self) -> Iterator[Path]:
        for packages in sys.path:
            if Path(packages).name in ("site-packages", "dist-packages"):
                for folder in sorted(Path(packages).glob("nvidia/*/lib")):
                    yield from (folder / file for file in self.files)
        for system in ("/usr/local/cuda/lib64", "/opt/cuda/lib64", *_library_path()):
            yield from (Path(system) / file for file in self.files)
        for file in self.files:
            yield from (
                Path(path) for path in re.findall(rf"^\s*{re.escape(file)} .*=> (\S+)$", _known(), re.MULTILINE)
            )


def _library_path() -> list[str]:
    return [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]


def _known() -> str:
    """Return what the system's loader knows."""
    program = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if program is None:
        return ""
    return subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout


LIBRARIES: Final = (
    DeviceLibrary(
        "cuSPARSE",
        ("libcusparse.so.12",),
        "OPFORGE_CUSPARSE",
        "nvidia-cusparse (CUDA 13) or nvidia-cusparse-cu12",
        "a variant of SparseMatMul's CUDA kernels",
    ),
    DeviceLibrary(
        "cuBLAS",
        ("libcublas.so.13", "libcublas.so.12"),
        "OPFORGE_CUBLAS",
        "nvidia-cublas (CUDA 13) or nvidia-cublas-cu12",
        "a variant of CUDA kernels that multiply dense matrices",
    ),
)
