"""What the text of an operator's .cu files shows: launches that are not on the host's stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from opforge.cuda.source import includes, launches
from opforge.schema import Operator
from opforge.verify._rows import Row

__all__ = ["cuda_sources", "streams"]

_SUFFIXES: Final = frozenset({".cu", ".cuh"})
_DEFAULT: Final = frozenset(
    {"0", "nullptr", "NULL", "{}", "cudaStream_t()", "cudaStream_t{}", "cudaStreamDefault", "cudaStreamLegacy",
     "cudaStreamPerThread", "(cudaStream_t)0", "static_cast<cudaStream_t>(0)"}
)  # fmt: skip
"""What the default streams are written as, without blanks."""


def cuda_sources(operator: Operator) -> list[Path]:
    """Return the operator's .cu files and what they include from beside them."""
    waiting = [source for source in operator.sources if source.suffix in _SUFFIXES and source.is_file()]
    found: dict[Path, None] = {}
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        found[path] = None
        beside = (path.parent / name for name in includes(path.read_text(encoding="utf-8", errors="replace")))
        waiting += [one for one in beside if one.is_file() and one.suffix in (*_SUFFIXES, ".h", ".hpp")]
    return list(found)


def streams(operator: Operator) -> Iterator[Row]:
    """A row per launch: one that names no stream runs on the default one, before its inputs are there, or after."""
    for path in cuda_sources(operator):
        for one in launches(path.read_text(encoding="utf-8", errors="replace")):
            given = one.configuration[3] if len(one.configuration) > 3 else ""
            bad = not given or "".join(given.split()) in _DEFAULT
            what = f"names the default stream, {given}" if given else "names no stream"
            detail = (
                f"{path.name}:{one.line}: the launch of {one.kernel} {what}: it does not wait for the host's stream,"
                " and results change from run to run; write <<<blocks, threads, shared memory, launch.stream()>>>"
            )
            yield Row("streams", f"{path.name}:{one.line}", "", "", not bad, detail if bad else "")
