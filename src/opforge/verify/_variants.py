"""The same values laid out otherwise, and the values at which kernels go wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from opforge.schema import DType

__all__ = ["boundary_values", "layouts"]

Array = np.ndarray[Any, Any]


def layouts(array: Array) -> Iterator[tuple[str, Array]]:
    """Yield arrays like ``array`` with other strides and offsets.

    Values are those of ``array``, but in the expanded one (floating only), which repeats the first of them.
    """
    if array.ndim == 0 or array.size == 0:
        return
    if array.ndim >= 2:
        yield "transposed", np.ascontiguousarray(array.T).T
    wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2 + 1), array.dtype)
    wide[..., 1::2] = array
    yield "sliced", wide[..., 1::2]
    if array.dtype.kind not in "biu":
        # Not broadcast_to: its arrays are read-only, and PyTorch warns about those.
        yield "expanded", np.lib.stride_tricks.as_strided(array, array.shape, (0, *array.strides[1:]))


def boundary_values(dtype: DType, limit: float = math.inf) -> Array:
    """Return NaN, infinities, both zeros, denormals, the largest numbers and large magnitudes, rounded to ``dtype``.

    Finite ones are limited to ``limit``.
    """
    import ml_dtypes

    info: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    big, tiny, small = float(info.max), float(info.tiny), float(info.smallest_subnormal)
    wide = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        small,
        -small,
        tiny,
        -tiny,
        big,
        -big,
        1e5,
        -1e5,
        100.0,
        -100.0,
        1.0,
        -1.0,
        0.5,
    ]
    with np.errstate(over="ignore"):
        limited = [value if math.isinf(value) else min(max(value, -limit), limit) for value in wide]
        return np.array(limited).astype(dtype.numpy)
