"""Gradients on PyTorch tensors: the steps of a program as overloads, and the check of what they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opforge.errors import SchemaError
from opforge.frameworks._programs import Plans

if TYPE_CHECKING:
    from opforge.frameworks.torch._entries import Entry

__all__ = ["check_shapes", "plans_of"]


def plans_of(entry: Entry) -> Plans | None:
    """Return the plans of an operator's gradients; None where it has none."""
    from opforge.frameworks.torch._entries import ENTRIES

    return Plans(entry.gradient, lambda key: ENTRIES.of_key(key).overload) if entry.gradient is not None else None


def check_shapes(entry: Entry, gradients: Sequence[Any], shapes: Sequence[Any], counts: Sequence[int] = ()) -> None:
    """Raise where a gradient's shape is not its input's, before autograd sums or expands it silently."""
    for index, (gradient, shape) in enumerate(zip(gradients, shapes, strict=True)):
        if gradient is not None and gradient.shape != shape:
            raise SchemaError(
                "the gradient program gives a wrong shape",
                where=f"{entry.where}, gradient of {_name(entry, index, counts)}",
                expected=list(shape),
                got=list(gradient.shape),
                hint="correct gradient= of the operator",
            )


def _name(entry: Entry, flat: int, counts: Sequence[int]) -> str:
    """Name the parameter of a flat input tensor; without counts there is one tensor per parameter."""
    inputs = entry.signature.inputs
    owners = [p.name for p, count in zip(inputs, counts or [1] * len(inputs), strict=True) for _ in range(count)]
    return owners[flat]
