"""Reverse-mode derivatives: the operator's gradient program as a custom_vjp rule.

The program's steps are operators with such rules of their own, so derivatives of any order follow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from opforge.frameworks._programs import (
    Plans,
    Values,
    check_shape,
    complete,
    flattened,
    grouped,
    not_differentiable,
    run,
    split,
    spread,
)
from opforge.frameworks.jax._entries import ENTRIES, Entry
from opforge.frameworks.jax._raw import Static, infer, raw

__all__ = ["differentiable"]


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Kind:
    """Shape and dtype of a tensor, which the backward pass knows without the tensor."""

    shape: tuple[Any, ...]
    dtype: Any


@functools.lru_cache(maxsize=4096)
def differentiable(entry: Entry, static: Static) -> Callable[..., tuple[Any, ...]]:
    """Return the operator with these attributes as a function of flat tensors that gives flat outputs."""
    function = jax.custom_vjp(raw(entry, static))
    inputs, outputs = entry.signature.inputs, entry.signature.outputs
    counts = static[1] or (1,) * len(inputs)
    plans = Plans(entry.gradient, _step) if entry.gradient is not None else None
    attributes = dict(zip((a.name for a in entry.signature.attributes), static[0], strict=True))

    # Gradients of all floating inputs are computed: which of them are wanted is not known here (what custom_vjp's
    # symbolic zeros say belongs to one trace, and the rule may be shared by several). XLA removes unread calls.
    def forward(*tensors: Any) -> tuple[Any, Any]:  # noqa: ANN401
        made = function(*tensors)  # differentiated again in derivatives of higher order
        if plans is None:
            raise not_differentiable(entry.where, "use jax.lax.stop_gradient on the input")
        plan = plans(_wanted(counts, tensors))
        read = [t if k in plan.inputs else None for k, t in enumerate(grouped(inputs, counts, tensors))]
        out_counts = infer(entry, static, tensors).output_counts
        written = [t if k in plan.outputs else None for k, t in enumerate(grouped(outputs, out_counts, made))]
        return made, (read, written, [_Kind(tuple(t.shape), t.dtype) for t in tensors])

    def backward(residual: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:  # noqa: ANN401
        assert plans is not None  # or there was no residual
        read, written, tensors = residual
        values: Values = {("i", k): value for k, value in enumerate(read)}
        values.update((("o", k), value) for k, value in enumerate(written))
        out_counts = infer(entry, static, tensors).output_counts
        given = [None if c.dtype == jax.dtypes.float0 else c for c in cotangents]
        values.update((("g", k), value) for k, value in enumerate(grouped(outputs, out_counts, given)))
        results = spread(run(plans(_wanted(counts, tensors)), values, attributes), counts)
        owners = [p.name for p, count in zip(inputs, counts, strict=True) for _ in range(count)]
        for name, gradient, tensor in zip(owners, results, tensors, strict=True):
            if gradient is not None:
                fits = tuple(gradient.shape) == tensor.shape
                check_shape(entry.where, name, tensor.shape, gradient.shape, fits=fits)
        return tuple(results)

    function.defvjp(forward, backward)
    return function  # type: ignore[no-any-return]


def _wanted(counts: Sequence[int], tensors: Sequence[Any]) -> tuple[bool, ...]:
    floats = [bool(jnp.issubdtype(t.dtype, jnp.floating)) for t in tensors]
    return tuple(any(group) for group in split(floats, counts))


def _step(key: str) -> Callable[..., Any]:
    entry = ENTRIES.of_key(key)

    def compute(*operands: Any, **given: Any) -> Any:  # noqa: ANN401
        groups = flattened(operands)
        counts = tuple(map(len, groups))
        simple = all(count == 1 for count in counts) and not entry.signature.variadic
        static: Static = (tuple(complete(entry.signature, given).values()), None if simple else counts)
        tensors = [t for group in groups for t in group]
        outputs = differentiable(entry, static)(*tensors)
        results = grouped(entry.signature.outputs, infer(entry, static, tensors).output_counts, outputs)
        return results[0] if len(results) == 1 else results

    return compute
