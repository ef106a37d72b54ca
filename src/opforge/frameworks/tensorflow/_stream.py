"""What reads the CUDA stream of a kernel in TensorFlow, compiled once per version against the installed one.

TensorFlow's C API gives no stream of the GPUs that TensorFlow serves itself, and the C++ classes that have it change
with every version. The first operator on a GPU builds the function, in some 5 seconds; without one it is never built.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Final

import tensorflow as tf

from opforge.build.adapters import Recipe
from opforge.build.native import load_native
from opforge.errors import UnsupportedError

__all__ = ["build", "stream_function"]

_HEADERS: Final = ("tensorflow/core/framework/op_kernel.h", "xla/stream_executor/stream.h")


def _recipe() -> Recipe:
    flags = tuple(flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith(("-I", "--std", "-std")))
    return Recipe(
        name="tensorflow-stream",
        where=f"what reads streams of TensorFlow {tf.__version__}",
        source="tensorflow/stream.cpp",
        flags=(
            "-std=c++17", "-O1", "-g0", "-fPIC", "-fvisibility=hidden", "-w", "-DNDEBUG",
            *flags, "-isystem", tf.sysconfig.get_include(),
        ),
        link_flags=("-shared", "-s"),
        identity=(tf.__version__, tf.version.GIT_VERSION, *flags),
    )  # fmt: skip


def build(*, force: bool = False) -> Path:
    """Build it for this TensorFlow, unless it is there already, and return its path.

    Args:
        force: build even where an earlier attempt failed.

    Raises:
        ToolchainError: there is no C++ compiler.
        BuildError: the compiler refuses it; its words are in the message.
        UnsupportedError: this TensorFlow has no C++ headers.
    """
    include = Path(tf.sysconfig.get_include())
    missing = [name for name in _HEADERS if not (include / name).is_file()]
    if missing:
        raise UnsupportedError(
            "this TensorFlow has no C++ headers, which an operator on a GPU needs once",
            where=str(include),
            expected=", ".join(_HEADERS),
            got=f"no {missing[0]}",
            hint="install TensorFlow from its wheels",
        )
    return _recipe().build(force=force)


@functools.cache
def stream_function() -> int:
    """Return the address of the function, which is kept for the process; built where it is not there."""
    library = load_native(build(), "TensorFlow stream reader")
    return ctypes.cast(library.opforge_tensorflow_stream, ctypes.c_void_p).value or 0
