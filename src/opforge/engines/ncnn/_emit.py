"""The C++ of our layers for ncnn's C API, joined to one file that needs neither our headers nor ncnn's."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from opforge import _paths
from opforge._files import whole_file
from opforge.build.adapters import adapter_sources
from opforge.errors import UnsupportedError

__all__ = ["write_layers"]

_HEADER: Final = "opforge_ncnn.h"
_SOURCE: Final = "opforge_ncnn.cpp"
_INCLUDE: Final = re.compile(r'^#include "([^"]+)"$')


def _find(name: str) -> Path:
    for root in (adapter_sources(), _paths.include_dir()):
        if (root / name).is_file():
            return root / name
    raise UnsupportedError("a source file of opforge is missing", where=name, hint="install opforge again")


def _joined(name: str, seen: set[Path]) -> list[str]:
    """Return the lines of a file with those of its includes in their place, each file once."""
    path = _find(name)
    if path in seen:
        return []
    seen.add(path)
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        include = _INCLUDE.match(line)
        if include is not None and include.group(1) == f"ncnn/{_HEADER}":
            lines.append(f'#include "{_HEADER}"')
        elif include is not None:
            lines += _joined(include.group(1), seen)
        elif line != "#pragma once":
            lines.append(line)
    return lines


def write_layers(folder: str | os.PathLike[str]) -> list[Path]:
    """Write ``opforge_ncnn.cpp`` and ``opforge_ncnn.h``: layers for programs that call ncnn's C API.

    They know no operator: what a model needs comes from a kernel library, which ``opforge build PACKAGE`` writes.
    Compile the one with C++17 into what links ncnn, and include the other where nets are made.

    Args:
        folder: where to; it is made if need be.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    texts = {
        _SOURCE: "\n".join(_joined("ncnn/ncnn.cpp", set())) + "\n",
        _HEADER: _find(f"ncnn/{_HEADER}").read_text(encoding="utf-8"),
    }
    for name, text in texts.items():
        with whole_file(target / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [target / name for name in texts]
