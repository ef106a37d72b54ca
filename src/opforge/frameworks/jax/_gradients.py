"""Reverse-mode derivatives: the operator's gradient program as a custom_vjp rule.

The program's steps are operators with such rules of their own, so derivatives of any order follow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from opforge.errors import SchemaError, UnsupportedError
from opforge.frameworks.jax._entries import Entry, entry_of
from opforge.frameworks.jax._raw import Static, infer, raw
from opforge.schema import AttributeValue, ForwardAttribute, GradientProgram, Operand

__all__ = ["differentiable"]

Values = dict[tuple[str, int], Any]
"""(kind, parameter) -> a tensor, a list of them for a variadic one, or None."""


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
        read = [t if k in reads[1] else None for k, t in enumerate(_group(inputs, counts, tensors))]
        out_counts = infer(entry, static, tensors).output_counts
        written = [t if k in reads[2] else None for k, t in enumerate(_group(outputs, out_counts, made))]
        return made, (read, written, [_Kind(tuple(t.shape), t.dtype) for t in tensors])

    def backward(residual: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:  # noqa: ANN401
        read, written, tensors = residual
        program = _program(entry, counts, tensors)[0]
        values: Values = {("i", k): value for k, value in enumerate(read)}
        values.update((("o", k), value) for k, value in enumerate(written))
        out_counts = infer(entry, static, tensors).output_counts
        given = [None if c.dtype == jax.dtypes.float0 else c for c in cotangents]
        values.update((("g", k), value) for k, value in enumerate(_group(outputs, out_counts, given)))
        found = run(program, values, attributes)
        results = [t for group, count in zip(found, counts, strict=True) for t in _spread(group, count)]
        _check(entry, results, [t.shape for t in tensors], counts)
        return tuple(results)

    function.defvjp(forward, backward)
    return function  # type: ignore[no-any-return]


def _program(
    entry: Entry, counts: Sequence[int], tensors: Sequence[Any]
) -> tuple[GradientProgram, frozenset[int], frozenset[int]]:
    """Give the gradient program of the floating inputs, and the forward inputs and outputs that it reads."""
    if entry.gradient is None:
        raise UnsupportedError(
            "the operator is not differentiable",
            where=entry.where,
            expected="a gradient program",
            got="none is declared",
            hint="declare the operator with gradient=, or use jax.lax.stop_gradient on the input",
        )
    floats = [bool(jnp.issubdtype(t.dtype, jnp.floating)) for t in tensors]
    program = entry.gradient.prune([any(group) for group in _split(floats, counts)])
    return program, frozenset(program.reads("i")), frozenset(program.reads("o"))


def run(program: GradientProgram, values: Values, attributes: dict[str, AttributeValue]) -> list[Any]:
    """Execute a program; give one gradient (a list for a variadic one, None where there is none) per parameter."""
    for step in program.steps:
        target = entry_of(step.key)
        groups = [_operand(values, operand) for operand in step.operands]
        given = {
            name: attributes[value.name] if isinstance(value, ForwardAttribute) else value
            for name, value in step.attributes
        }
        in_order = tuple(
            declared.coerce(given[declared.name]) if declared.name in given else declared.default
            for declared in target.signature.attributes
        )
        counts = tuple(len(group) if isinstance(group, list) else int(group is not None) for group in groups)
        simple = all(count == 1 for count in counts) and not target.signature.variadic
        tensors = [t for group in groups for t in (group if isinstance(group, list) else [group]) if t is not None]
        static: Static = (in_order, None if simple else counts)  # type: ignore[assignment]
        outputs = differentiable(target, static)(*tensors)
        made = infer(target, static, tensors).output_counts
        for index, value in zip(step.results, _group(target.signature.outputs, made, outputs), strict=True):
            values["v", index] = value
    return [_operand(values, result) for result in program.results]


def _operand(values: Values, operand: Operand) -> Any:  # noqa: ANN401
    return values.get((operand.kind, operand.index))


def _split(values: Iterable[Any], counts: Sequence[int]) -> list[list[Any]]:
    rest = iter(values)
    return [[next(rest) for _ in range(count)] for count in counts]


def _group(parameters: Sequence[Any], counts: Sequence[int], flat: Iterable[Any]) -> list[Any]:
    """Bring flat tensors into one value per parameter."""
    groups = _split(flat, counts)
    return [g if p.variadic else g[0] if g else None for p, g in zip(parameters, groups, strict=True)]


def _spread(group: Any, count: int) -> list[Any]:  # noqa: ANN401
    """Undo `_group` for one parameter of `count` tensors."""
    return list(group) if isinstance(group, list) else [group] * count


def _check(entry: Entry, gradients: Sequence[Any], shapes: Sequence[Any], counts: Sequence[int]) -> None:
    """Raise where a gradient's shape is not its input's."""
    owners = [p.name for p, count in zip(entry.signature.inputs, counts, strict=True) for _ in range(count)]
    for name, gradient, shape in zip(owners, gradients, shapes, strict=True):
        if gradient is not None and tuple(gradient.shape) != tuple(shape):
            raise SchemaError(
                "the gradient program gives a wrong shape",
                where=f"{entry.where}, gradient of {name}",
                expected=list(shape),
                got=list(gradient.shape),
                hint="correct gradient= of the operator",
            )
