"""The accelerator: the C++ autograd adapter, compiled once per PyTorch version against the installed one.

An import never compiles. ``opforge build --host torch`` (or ``opforge.torch.build_accelerator()``) builds it; so does
a process that had to take the stable route, in the background and for the next process, unless
``OPFORGE_TORCH_BUILD=off``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from opforge import _paths
from opforge.build.adapters import Recipe
from opforge.build.toolchain import find_compiler
from opforge.errors import ArgumentError, OpforgeError, UnsupportedError

__all__ = ["build", "build_in_background", "built", "failure"]


def _flags() -> tuple[str, ...]:
    headers = Path(torch.__file__).parent / "include"
    return (
        "-std=c++20", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-w", "-DNDEBUG",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        "-isystem", str(headers), "-isystem", str(headers / "torch" / "csrc" / "api" / "include"),
    )  # fmt: skip


def _recipe() -> Recipe:
    libraries = Path(torch.__file__).parent / "lib"
    return Recipe(
        name="torch-accelerator",
        where=f"the accelerator for torch {torch.__version__}",
        source="torch/accelerator/accelerator.cpp",
        flags=_flags(),
        link_flags=("-shared", f"-L{libraries}", "-ltorch_cpu", "-lc10", "-Wl,--as-needed", "-s"),
        identity=(torch.__version__, str(torch.version.git_version), str(torch._C._GLIBCXX_USE_CXX11_ABI)),
        folders=("torch",),
    )


def built() -> Path | None:
    """Return the accelerator that fits this PyTorch, or None where it has not been built."""
    return _recipe().built()


def build(*, force: bool = False) -> Path:
    """Build the accelerator for this PyTorch, unless it is there already, and return its path.

    It takes about 15 seconds and 1 GB of memory. A process that already took the stable route stays on it.

    Args:
        force: build even where an earlier attempt failed.

    Raises:
        ToolchainError: there is no C++ compiler.
        BuildError: the compiler refuses it; its words are in the message.
        UnsupportedError: this PyTorch has no C++ headers.
    """
    root = Path(torch.__file__).parent
    if not (root / "include" / "torch" / "library.h").is_file():
        raise UnsupportedError(
            "this PyTorch has no C++ headers", where=str(root), hint="install PyTorch from its wheels"
        )
    return _recipe().build(force=force)


def failure() -> str | None:
    """Return what an earlier build for this PyTorch failed with, or None."""
    return _recipe().failure()


def build_in_background() -> bool:
    """Start a build that outlives this process, for the next one; return whether one was started.

    ``OPFORGE_TORCH_BUILD`` = ``background`` (default) or ``off``. Nothing starts where the accelerator is there, where
    a build failed before, or where there is no compiler.
    """
    wanted = os.environ.get("OPFORGE_TORCH_BUILD", "background").strip().lower() or "background"
    if wanted not in ("background", "off"):
        raise ArgumentError("unknown value", where="OPFORGE_TORCH_BUILD", expected="background | off", got=repr(wanted))
    if wanted == "off" or built() is not None or failure() is not None:
        return False
    try:
        find_compiler()
    except OpforgeError:
        return False
    code = (
        "import os; os.nice(15); os.environ['OPFORGE_TORCH_BUILD'] = 'off'\n"
        "from opforge.frameworks.torch._accelerator import build; build()"
    )
    path = os.pathsep.join([str(Path(_paths.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")])
    subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
    )
    return True
