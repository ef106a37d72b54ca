"""NumPy arrays in and out of PyTorch, and one backward pass: what checks need of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

__all__ = ["MODES", "compute", "gradients", "second_gradients", "to_numpy", "to_tensor", "watch"]

Array = np.ndarray[Any, Any]
MODES = ("eager", "traced", "compiled")
"""How an operator can be called: as it is, traced whole by torch.compile, or with code generated besides."""
_BACKENDS = {"traced": "aot_eager", "compiled": "inductor"}


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


Function = Callable[..., Any]
"""An operator, or anything else that takes tensors and attributes by name and gives tensors."""


def _function(operator: Function, attributes: Mapping[str, Any], mode: str) -> Callable[..., list[torch.Tensor]]:
    def call(*tensors: torch.Tensor | None) -> list[torch.Tensor]:
        result = operator(*tensors, **attributes)
        return list(result) if isinstance(result, tuple | list) else [result]

    if mode == "eager":
        return call
    torch._dynamo.reset()  # or the functions of earlier calls, which share this code, count as its recompilations
    compiled: Callable[..., list[torch.Tensor]] = torch.compile(call, backend=_BACKENDS[mode], fullgraph=True)
    return compiled


def compute(
    operator: Function, arrays: Sequence[Array | None], attributes: Mapping[str, Any], mode: str = "eager"
) -> list[Array]:
    """Run the operator in one of ``MODES``."""
    with torch.no_grad():
        result = _function(operator, attributes, mode)(*(None if a is None else to_tensor(a) for a in arrays))
    return [to_numpy(t) for t in result]


def watch(operator: Function, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> Callable[[], None]:
    """Return a call that records the operator for a backward pass which never comes."""
    leaves = [None if a is None else to_tensor(a).requires_grad_(a.dtype.kind not in "biu") for a in arrays]

    def forward() -> None:
        operator(*leaves, **attributes)

    return forward


def gradients(
    operator: Function,
    arrays: Sequence[Array | None],
    grads: Sequence[Array],
    attributes: Mapping[str, Any],
    mode: str = "eager",
) -> list[Array | None]:
    """Run the operator and its backward pass; one gradient per input, None for integers and absent ones."""
    leaves = [None if a is None else to_tensor(a).requires_grad_(a.dtype.kind not in "biu") for a in arrays]
    outputs = _function(operator, attributes, mode)(*leaves)
    wanted = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    pairs = [(o, to_tensor(np.asarray(g))) for o, g in zip(outputs, grads, strict=True) if o.requires_grad]
    if not pairs or not wanted:  # nothing was recorded: the operator has no rule, or no input takes part
        return [None] * len(leaves)
    found = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
    by_leaf = {id(leaf): value for leaf, value in zip(wanted, found, strict=True)}
    values = [None if leaf is None else by_leaf.get(id(leaf)) for leaf in leaves]
    return [None if value is None else to_numpy(value) for value in values]


def second_gradients(
    operator: Function,
    arrays: Sequence[Array | None],
    grads: Sequence[Array],
    weights: Sequence[Array | None],
    attributes: Mapping[str, Any],
) -> list[Array | None]:
    """Differentiate the sum of ``weights`` times the first gradients; None where nothing was recorded for an input."""
    leaves = [None if a is None else to_tensor(a).requires_grad_(a.dtype.kind not in "biu") for a in arrays]
    wanted = [k for k, leaf in enumerate(leaves) if leaf is not None and leaf.requires_grad]
    tensors = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
    outputs = _function(operator, attributes, "eager")(*leaves)
    # Only with such gradients does autograd tell who declared himself once differentiable.
    given = [to_tensor(np.asarray(g)).requires_grad_(g.dtype.kind not in "biu") for g in grads]
    pairs = [(o, g) for o, g in zip(outputs, given, strict=True) if o.requires_grad]
    first = torch.autograd.grad(
        [o for o, _ in pairs], tensors, [g for _, g in pairs], create_graph=True, allow_unused=True
    )
    parts = [(g, w) for k, g in zip(wanted, first, strict=True) if (w := weights[k]) is not None and g is not None]
    recorded = [(g * to_tensor(np.asarray(w))).sum() for g, w in parts if g.requires_grad]
    values: list[Array | None] = [None] * len(leaves)
    if recorded:
        total = torch.stack(recorded).sum()
        second = torch.autograd.grad(total, tensors, allow_unused=True, retain_graph=True)
        if all(g is None for g in second):
            # Raises where the gradient is declared to have none: no path leads to the inputs then.
            total.backward()  # type: ignore[no-untyped-call]
        for k, g in zip(wanted, second, strict=True):
            values[k] = None if g is None else to_numpy(g)
    return values
