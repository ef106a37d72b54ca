"""Plugins in C++: one file per package that needs TensorRT's headers and nothing of ours, and how CMake builds it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opforge._files import whole_file
from opforge.build.adapters import joined_source
from opforge.engines.tensorrt._kernels import data_dependent, has_cuda
from opforge.engines.tensorrt._names import plugin_id
from opforge.errors import ArgumentError

if TYPE_CHECKING:
    from opforge.schema import Operator

__all__ = ["write_plugins"]

_CMAKE = """\
# {name}_tensorrt.cmake, written by opforge: include() it, or copy the lines.
#   TENSORRT_INCLUDE_DIR  the folder of NvInfer.h
#   CUDAToolkit           whose headers NvInfer.h includes
# The library finds {library} in its own folder, or in the folders of OPFORGE_LIBRARY_PATH.
find_path(TENSORRT_INCLUDE_DIR NvInfer.h REQUIRED)
find_package(CUDAToolkit REQUIRED)
add_library({name}_tensorrt MODULE ${{CMAKE_CURRENT_LIST_DIR}}/{name}_tensorrt.cpp)
target_compile_features({name}_tensorrt PRIVATE cxx_std_17)
target_include_directories({name}_tensorrt SYSTEM PRIVATE ${{TENSORRT_INCLUDE_DIR}} ${{CUDAToolkit_INCLUDE_DIRS}})
target_link_libraries({name}_tensorrt PRIVATE ${{CMAKE_DL_LIBS}})
set_target_properties({name}_tensorrt PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden)
"""


def write_plugins(
    folder: str | os.PathLike[str], operators: Sequence[Operator], *, name: str, library: str = ""
) -> list[Path]:
    """Write ``<name>_tensorrt.cpp`` and ``<name>_tensorrt.cmake``; see `opforge.tensorrt.write_plugins`."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ArgumentError("not a name for files", where="write_plugins", expected="an identifier", got=repr(name))
    library = library or f"{name}_cuda.so"
    if Path(library).name != library or not library.isprintable() or '"' in library or "\\" in library:
        raise ArgumentError("not the name of a file", where="write_plugins", expected="a plain name", got=repr(library))
    served = [operator for operator in operators if has_cuda(operator) and not data_dependent(operator)]
    if not served:
        raise ArgumentError(
            "no operator can be a plugin",
            where="write_plugins",
            expected="operators with CUDA kernels, whose outputs' sizes follow from their inputs'",
            got=", ".join(operator.key for operator in operators) or "none",
        )
    rows = [f"//   {plugin_id(operator)}: {operator.signature}" for operator in served]
    head = [
        f"// {name}_tensorrt.cpp, written by opforge: plugins for TensorRT, on the CUDA kernels of {library}.",
        "// Compile it as a shared library with TensorRT's headers (as the .cmake file does) and give that to trtexec",
        "// --dynamicPlugins, IPluginRegistry::loadLibrary or IBuilderConfig::setPluginsToSerialize. Its plugins:",
        *rows,
        f'#define OPFORGE_TENSORRT_LIBRARY "{library}"',
    ]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    texts = {
        f"{name}_tensorrt.cpp": "\n".join((*head, *joined_source("tensorrt/tensorrt.cpp"))) + "\n",
        f"{name}_tensorrt.cmake": _CMAKE.format(name=name, library=library),
    }
    for file, text in texts.items():
        with whole_file(target / file) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [target / file for file in texts]
