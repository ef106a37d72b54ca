"""The accelerator: the C++ autograd adapter, compiled once per PyTorch version against the installed one.

An import never compiles. ``opforge build --host torch`` (or ``opforge.torch.build_accelerator()``) builds it; so does
a process that had to take the stable route, in the background and for the next process, unless
``OPFORGE_TORCH_BUILD=off``.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import torch

from opforge import _paths
from opforge.build.cache import open_cache
from opforge.build.compile import compile_units, link
from opforge.build.toolchain import find_compiler
from opforge.codegen.units import Unit
from opforge.errors import ArgumentError, BuildError, OpforgeError, UnsupportedError

__all__ = ["build", "build_in_background", "built", "failure", "sources"]

_NAME: Final = "torch-accelerator"
_LIBRARIES: Final = ("-ltorch_cpu", "-lc10")


def sources() -> Path:
    """Return the folder of the adapter's C++ sources."""
    package = Path(_paths.__file__).resolve().parent
    installed = package / "adapters" / "torch"
    return installed if installed.is_dir() else package.parent.parent / "adapters" / "torch"


def _files() -> list[Path]:
    """Give the adapter's own sources and the headers of ours that they include."""
    found: dict[Path, None] = {}
    waiting = [sources() / "accelerator" / "accelerator.cpp"]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            waiting.append(
                next(
                    root / name
                    for root in (sources(), sources().parent, _paths.include_dir())
                    if (root / name).is_file()
                )
            )
    return sorted(found)


@functools.cache
def _key() -> str:
    """Name the build: this PyTorch, this platform, these sources. Not the compiler, which a lookup must not ask."""
    digest = hashlib.sha256()
    identity = (
        torch.__version__,
        str(torch.version.git_version),
        str(torch._C._GLIBCXX_USE_CXX11_ABI),
        platform.machine(),
    )
    for part in (*identity, *_flags()):
        digest.update(part.encode() + b"\0")
    for path in _files():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def _flags() -> tuple[str, ...]:
    root = Path(torch.__file__).parent
    headers = root / "include"
    return (
        "-std=c++20", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-w", "-DNDEBUG",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        "-isystem", str(headers), "-isystem", str(headers / "torch" / "csrc" / "api" / "include"),
        f"-I{sources()}", f"-I{sources().parent}", f"-I{_paths.include_dir()}",
    )  # fmt: skip


def built() -> Path | None:
    """Return the accelerator that fits this PyTorch, or None where it has not been built."""
    try:
        return open_cache().lookup(_NAME, _key())
    except OSError:
        return None


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
    cache = open_cache()
    key = _key()
    done = cache.lookup(_NAME, key)
    if done is not None:
        return done
    compiler = find_compiler()
    with cache.lock(_NAME, key):
        done = cache.lookup(_NAME, key)  # another process may have finished it
        if done is not None:
            return done
        if not force and (text := failure()) is not None:
            raise BuildError(
                "an earlier build of the accelerator failed", where=_NAME, got=text, hint="build with force=True"
            )
        where = f"the accelerator for torch {torch.__version__}"
        started = time.time_ns()
        try:
            with cache.workspace(_NAME, key) as work:
                unit = Unit("accelerator.cpp", '#include "accelerator/accelerator.cpp"\n')
                objects, _, _ = compile_units(compiler, [unit], _flags(), work, where)
                output = work / f"{_NAME}.so"
                flags = ("-shared", f"-L{root / 'lib'}", *_LIBRARIES, "-Wl,--as-needed", "-s")
                link(compiler, objects, output, flags, where)
                path = cache.publish(_NAME, key, output, _files(), key, started)
        except BuildError as error:
            _failure_file().write_text(str(error), encoding="utf-8")
            raise
    _failure_file().unlink(missing_ok=True)
    return path


def _failure_file() -> Path:
    cache = open_cache()
    folder = (cache.fallback or cache.root) / "failed"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{_NAME}-{_key()}.txt"


def failure() -> str | None:
    """Return what an earlier build for this PyTorch failed with, or None."""
    try:
        return _failure_file().read_text(encoding="utf-8")
    except OSError:
        return None


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
