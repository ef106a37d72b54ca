"""NumPy arrays in and out of PyTorch, and one backward pass: what checks need of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from opforge.schema import Operator

__all__ = ["compute", "gradients", "to_numpy", "to_tensor"]

Array = np.ndarray[Any, Any]


def to_tensor(array: Array) -> torch.Tensor:
    """Give a tensor with the array's values, dtype and strides (strides below zero are copied away)."""
    source = array if all(s >= 0 for s in array.strides) else array.copy()
    if source.dtype.name == "bfloat16":
        return torch.from_numpy(source.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(source)


def to_numpy(tensor: torch.Tensor) -> Array:
    """Give an array with the tensor's values and dtype."""
    plain = tensor.detach().contiguous()
    if plain.dtype == torch.bfloat16:
        import ml_dtypes

        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return np.asarray(plain.numpy())


def compute(operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[Array]:
    """Run the operator eagerly."""
    with torch.no_grad():
        result = operator(*(None if a is None else to_tensor(a) for a in arrays), **attributes)
    return [to_numpy(t) for t in (result if isinstance(result, tuple | list) else [result])]


def gradients(
    operator: Operator, arrays: Sequence[Array | None], grads: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Array | None]:
    """Run the operator and its backward pass; one gradient per input, None for integers and absent ones."""
    leaves = [None if a is None else to_tensor(a).clone().requires_grad_(a.dtype.kind not in "biu") for a in arrays]
    result = operator(*leaves, **attributes)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    wanted = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    found = torch.autograd.grad(outputs, wanted, [to_tensor(np.asarray(g)) for g in grads], allow_unused=True)
    by_leaf = {id(leaf): value for leaf, value in zip(wanted, found, strict=True)}
    values = [None if leaf is None else by_leaf.get(id(leaf)) for leaf in leaves]
    return [None if value is None else to_numpy(value) for value in values]
