"""Reverse-mode derivatives: an operator's gradient program as TensorFlow's gradient function of the operation.

The program's steps are registered operations with such functions of their own, so derivatives of any order follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

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
from opforge.frameworks.tensorflow._entries import Entry, entry_of
from opforge.frameworks.tensorflow._execute import execute
from opforge.schema.attributes import AttributeValue

__all__ = ["register"]


def register(entry: Entry) -> None:
    """Register the gradient function of an operation; one that raises where there is no gradient."""
    tf.RegisterGradient(entry.name)(lambda op, *gradients: _gradient(entry, op, gradients))


def _gradient(entry: Entry, op: Any, gradients: Sequence[Any]) -> list[Any]:  # noqa: ANN401 - an operation
    if entry.gradient is None:
        raise not_differentiable(entry.where, "tf.stop_gradient")
    inputs, outputs = entry.signature.inputs, entry.signature.outputs
    counts = [int(op.get_attr(count)) if count else 1 for count in entry.input_counts]
    output_counts = [int(op.get_attr(count)) if count else 1 for count in entry.output_counts]
    skipped = set(getattr(op, "skip_input_indices", None) or ())
    wanted = [k not in skipped and tensor.dtype.is_floating for k, tensor in enumerate(op.inputs)]
    filled = [
        tf.zeros_like(output) if gradient is None and output.dtype.is_floating else gradient
        for gradient, output in zip(gradients, op.outputs, strict=True)
    ]
    values: Values = {("i", k): value for k, value in enumerate(grouped(inputs, counts, op.inputs))}
    values.update((("o", k), value) for k, value in enumerate(grouped(outputs, output_counts, op.outputs)))
    values.update((("g", k), value) for k, value in enumerate(grouped(outputs, output_counts, filled)))
    program = entry.gradient.prune([any(group) for group in split(wanted, counts)])
    results = spread(run(program, values, _attributes(entry, op), _step), counts)
    owners = [p.name for p, count in zip(inputs, counts, strict=True) for _ in range(count)]
    for name, gradient, tensor in zip(owners, results, op.inputs, strict=True):
        if gradient is not None:
            fits = gradient.shape.is_compatible_with(tensor.shape)
            check_shape(entry.where, name, tensor.shape, gradient.shape, fits=fits)
    return [gradient if asked else None for gradient, asked in zip(results, wanted, strict=True)]


def _attributes(entry: Entry, op: Any) -> dict[str, AttributeValue]:  # noqa: ANN401
    def plain(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        return [plain(item) for item in value] if isinstance(value, list) else value

    values = {}
    for declared, name in zip(entry.signature.attributes, entry.attributes, strict=True):
        value = plain(op.get_attr(name))
        values[declared.name] = declared.coerce([bool(v) for v in value] if declared.kind == "bools" else value)
    return values


def _step(key: str, operands: Sequence[Any], given: Mapping[str, Any]) -> list[Any]:
    entry = entry_of(key)
    return execute(entry, flattened(operands), complete(entry.signature, given))
