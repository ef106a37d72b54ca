"""Reverse-mode derivatives: the operator's gradient program as a custom_vjp rule.

The program's steps are operators with such rules of their own, so derivatives of any order follow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from opforge.frameworks._programs import (
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
from opforge.frameworks.jax._entries import Entry, entry_of
from opforge.frameworks.jax._raw import Static, infer, raw
from opforge.schema import GradientProgram

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
    attributes = dict(zip((a.name for a in entry.signature.attributes), static[0], strict=True))

    # Gradients of all floating inputs are computed: which of them are wanted is not known here (what custom_vjp's
    # symbolic zeros say belongs to one trace, and the rule may be shared by several). XLA removes unread calls.
    def forward(*tensors: Any) -> tuple[Any, Any]:  # noqa: ANN401
        made = function(*tensors)  # differentiated again in derivatives of higher order
        reads = _program(entry, counts, tensors)
        read = [t if k in reads[1] else None for k, t in enumerate(grouped(inputs, counts, tensors))]
        out_counts = infer(entry, static, tensors).output_counts
        written = [t if k in reads[2] else None for k, t in enumerate(grouped(outputs, out_counts, made))]
        return made, (read, written, [_Kind(tuple(t.shape), t.dtype) for t in tensors])

    def backward(residual: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:  # noqa: ANN401
        read, written, tensors = residual
        program = _program(entry, counts, tensors)[0]
        values: Values = {("i", k): value for k, value in enumerate(read)}
        values.update((("o", k), value) for k, value in enumerate(written))
        out_counts = infer(entry, static, tensors).output_counts
        given = [None if c.dtype == jax.dtypes.float0 else c for c in cotangents]
        values.update((("g", k), value) for k, value in enumerate(grouped(outputs, out_counts, given)))
        results = spread(run(program, values, attributes, _step), counts)
        owners = [p.name for p, count in zip(inputs, counts, strict=True) for _ in range(count)]
        for name, gradient, tensor in zip(owners, results, tensors, strict=True):
            if gradient is not None:
                fits = tuple(gradient.shape) == tensor.shape
                check_shape(entry.where, name, tensor.shape, gradient.shape, fits=fits)
        return tuple(results)

    function.defvjp(forward, backward)
    return function  # type: ignore[no-any-return]


def _program(
    entry: Entry, counts: Sequence[int], tensors: Sequence[Any]
) -> tuple[GradientProgram, frozenset[int], frozenset[int]]:
    """Give the gradient program of the floating inputs, and the forward inputs and outputs that it reads."""
    if entry.gradient is None:
        raise not_differentiable(entry.where, "jax.lax.stop_gradient")
    floats = [bool(jnp.issubdtype(t.dtype, jnp.floating)) for t in tensors]
    program = entry.gradient.prune([any(group) for group in split(floats, counts)])
    return program, frozenset(program.reads("i")), frozenset(program.reads("o"))


def _step(key: str, operands: Sequence[Any], given: Mapping[str, Any]) -> list[Any]:
    entry = entry_of(key)
    groups = flattened(operands)
    counts = tuple(map(len, groups))
    simple = all(count == 1 for count in counts) and not entry.signature.variadic
    static: Static = (tuple(complete(entry.signature, given).values()), None if simple else counts)
    tensors = [t for group in groups for t in group]
    outputs = differentiable(entry, static)(*tensors)
    return grouped(entry.signature.outputs, infer(entry, static, tensors).output_counts, outputs)
