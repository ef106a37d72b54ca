"""Building one formula operator with its gradient, from nothing, against load_inline of the same."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _load_inline


def _prepare(threads: int) -> Prepared:
    import torch.utils.cpp_extension  # noqa: F401 - its import is not part of the build

    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPFORGE_CACHE"] = folder
        from opforge.build import library_for
        from opforge.ops import custom_gelu

        started = time.perf_counter()
        library_for([custom_gelu])
        ours = time.perf_counter() - started
        started = time.perf_counter()
        _load_inline.build(Path(folder) / "inline")
        return Prepared(values={OURS: ours, "load_inline": time.perf_counter() - started})


CASES = [
    Case(
        "build/formula+gradient",
        _prepare,
        {"load_inline": 10.0},
        rounds=3,
        needs=("torch", "ninja", "setuptools"),
        threads=2,
    )
]
