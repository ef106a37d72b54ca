"""The C++ of our layers for ncnn's C API, joined to one file that needs neither our headers nor ncnn's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from opforge._files import whole_file
from opforge.build.adapters import joined_source, source_file

__all__ = ["write_layers"]

_HEADER: Final = "opforge_ncnn.h"
_SOURCE: Final = "opforge_ncnn.cpp"


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
        _SOURCE: "\n".join(joined_source("ncnn/ncnn.cpp", {f"ncnn/{_HEADER}": _HEADER})) + "\n",
        _HEADER: source_file(f"ncnn/{_HEADER}").read_text(encoding="utf-8"),
    }
    for name, text in texts.items():
        with whole_file(target / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [target / name for name in texts]
