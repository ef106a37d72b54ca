"""vmap: one call with broadcasting for formula operators, one call per slice for kernel operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from opforge.schema import Broadcast, Rest

if TYPE_CHECKING:
    from opforge.frameworks.jax._entries import Entry

__all__ = ["broadcasting", "is_elementwise", "sequential"]


def is_elementwise(entry: Entry) -> bool:
    """Whether each input is a run ``*S`` of its own, so that dimensions of size 1 may be put in front."""
    inputs, outputs = entry.signature.inputs, entry.signature.outputs
    runs = [p.dims[0].name for p in inputs if len(p.dims) == 1 and isinstance(p.dims[0], Rest)]
    return (
        entry.is_formula
        and not any(p.optional or p.variadic for p in (*inputs, *outputs))
        and len(set(runs)) == len(inputs)
        and all(len(p.dims) == 1 and isinstance(p.dims[0], Rest | Broadcast) for p in outputs)
    )


def broadcasting(
    entry: Entry, call: Callable[..., Any], size: int, batched: Sequence[bool], tensors: Sequence[Any]
) -> tuple[Any, ...]:
    """Compute all slices by one call: the batch dimension first, then ones up to the largest rank."""
    names = [p.dims[0].name for p in entry.signature.inputs]  # type: ignore[union-attr]
    targets = [p.dims[0] for p in entry.signature.outputs]
    # An output of an input's own shape is summed to that shape, so every input must have the batch dimension then.
    summed = any(isinstance(dims, Rest) for dims in targets)
    ranks = [t.ndim - bool(b) for t, b in zip(tensors, batched, strict=True)]
    rank = max(ranks)
    prepared = []
    for tensor, has, own in zip(tensors, batched, ranks, strict=True):
        if not has and not summed:
            prepared.append(tensor)
            continue
        front = tensor if has else jnp.broadcast_to(tensor, (size, *tensor.shape))
        prepared.append(front.reshape(front.shape[0], *(1,) * (rank - own), *front.shape[1:]))
    results = []
    for result, dims in zip(call(*prepared), targets, strict=True):
        if isinstance(dims, Rest):
            own = ranks[names.index(dims.name)]
        else:
            own = max(ranks[names.index(name)] for name in dims.names)  # type: ignore[union-attr]
        results.append(result.reshape(result.shape[0], *result.shape[1 + rank - own :]))
    return tuple(results)


def sequential(call: Callable[..., Any], size: int, batched: Sequence[bool], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Compute slice after slice."""
    moving = [t for t, b in zip(tensors, batched, strict=True) if b]

    def one(slices: Sequence[Any]) -> Any:  # noqa: ANN401
        rest = iter(slices)
        return call(*[next(rest) if b else t for t, b in zip(tensors, batched, strict=True)])

    del size
    return tuple(jax.lax.map(one, moving))
