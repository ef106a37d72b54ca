"""Inputs for a model: from an .npz file, or random by its declared inputs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opforge.engines import TensorInfo
from opforge.errors import ArgumentError

__all__ = ["load_npz", "random_inputs"]

Array = np.ndarray[Any, Any]
_DEFAULT_SIZE = 2


def load_npz(path: Path) -> dict[str, Array]:
    """Read named arrays; nothing is unpickled."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def random_inputs(
    infos: Sequence[TensorInfo], *, seed: int = 0, sizes: Mapping[str, int] | None = None, high: int = 100
) -> dict[str, Array]:
    """Draw inputs by dtype and shape; the same seed gives the same arrays for the same input names.

    Args:
        infos: declared inputs.
        seed: of the generator.
        sizes: value for each named dimension, and ``{"input.axis": n}`` for nameless ones; others become 2.
        high: integers are drawn below this number. Inputs whose name says "mask" are all ones.
    """
    known = dict(sizes or {})
    used: set[str] = set()
    made = {}
    for info in infos:
        shape = tuple(_size(info, axis, known, used) for axis in range(len(info.shape)))
        rng = np.random.default_rng([seed, zlib.crc32(info.name.encode())])
        made[info.name] = _draw(rng, info, shape, high)
    unused = set(known) - used
    if unused:
        names = sorted({d for info in infos for d in info.shape if isinstance(d, str)})
        raise ArgumentError("no input has such a dimension", where=", ".join(sorted(unused)), expected=f"one of {names}")
    return made


def _size(info: TensorInfo, axis: int, known: Mapping[str, int], used: set[str]) -> int:
    dim = info.shape[axis]
    if isinstance(dim, int):
        return dim
    for key in (f"{info.name}.{axis}", dim):
        if key is not None and key in known:
            used.add(key)
            return known[key]
    return _DEFAULT_SIZE


def _draw(rng: np.random.Generator, info: TensorInfo, shape: tuple[int, ...], high: int) -> Array:
    if "mask" in info.name:
        return np.ones(shape, info.dtype)
    if info.dtype == np.bool_:
        return rng.random(shape) < 0.5
    if info.dtype.kind in "iu":
        limit = min(high, int(np.iinfo(info.dtype).max))
        return rng.integers(0, 1 if "type" in info.name else limit, shape).astype(info.dtype)
    return rng.standard_normal(shape, np.float32).astype(info.dtype)
