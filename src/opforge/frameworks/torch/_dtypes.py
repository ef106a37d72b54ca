"""PyTorch's dtypes and ours."""

from __future__ import annotations

from typing import Final

import torch

from opforge.schema import ALL, DType

__all__ = ["from_torch", "to_torch"]

_TO_TORCH: Final[dict[DType, torch.dtype]] = {dtype: getattr(torch, dtype.long_name) for dtype in ALL}
_FROM_TORCH: Final[dict[torch.dtype, DType]] = {value: key for key, value in _TO_TORCH.items()}


def from_torch(dtype: torch.dtype) -> DType:
    """Return our dtype for one of PyTorch's.

    Raises:
        DtypeError: there is none.
    """
    found = _FROM_TORCH.get(dtype)
    return found if found is not None else DType.parse(dtype)


def to_torch(dtype: DType) -> torch.dtype:
    """Return PyTorch's dtype for one of ours."""
    return _TO_TORCH[dtype]
