"""From declared operators to kernel libraries in this process: compile, cache, load.

``library_for([operator, ...])`` is what hosts call: it returns a library whose table holds those operators,
their generated gradient operators and every operator that their gradient programs name. It compiles on the first call
(``OPFORGE_JIT=auto``), takes the cached result afterwards, and falls back to the bytecode interpreter for
formulas where there is no compiler. ``device_library(operator, "cuda")`` is what they call when the first tensor on a
device comes. ``build_package`` does the same ahead of time into a folder.
"""

from __future__ import annotations

from opforge.build.device import device_library
from opforge.build.jit import library_for
from opforge.build.library import LibraryKernel, LibraryOperator, LoadedLibrary, load_library, read_table
from opforge.build.manifest import manifest
from opforge.build.package import build_operators, build_package

__all__ = [
    "LibraryKernel",
    "LibraryOperator",
    "LoadedLibrary",
    "build_operators",
    "build_package",
    "device_library",
    "library_for",
    "load_library",
    "manifest",
    "read_table",
]
