"""Reverse-mode derivatives: an operator's gradient program as TensorFlow's gradient function of the operation.

The program's steps are registered operations with such functions of their own, so derivatives of any order follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

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
from opforge.frameworks.tensorflow._eager import eager_function
from opforge.frameworks.tensorflow._entries import ENTRIES, Entry
from opforge.frameworks.tensorflow._execute import execute
from opforge.schema import Required
from opforge.schema.attributes import AttributeValue

__all__ = ["register"]


def register(entry: Entry) -> None:
    """Register the gradient function of an operation; one that raises where there is no gradient."""
    tf.RegisterGradient(entry.name)(_gradient_function(entry))


def _gradient_function(entry: Entry) -> Callable[..., list[Any]]:
    inputs, outputs = entry.signature.inputs, entry.signature.outputs
    plans = Plans(entry.gradient, _step) if entry.gradient is not None else None
    attributes = _attribute_reader(entry)
    ones = [1] * len(inputs)

    def gradient(op: Any, *gradients: Any) -> list[Any]:  # noqa: ANN401 - an operation
        if plans is None:
            raise not_differentiable(entry.where, "use tf.stop_gradient on the input")
        tensors = op.inputs
        skipped = getattr(op, "skip_input_indices", None) or ()
        wanted = [k not in skipped and tensor.dtype.is_floating for k, tensor in enumerate(tensors)]
        filled = [
            tf.zeros_like(output) if gradient is None and output.dtype.is_floating else gradient
            for gradient, output in zip(gradients, op.outputs, strict=True)
        ]
        if entry.plain:
            counts = ones
            given, made, grads, asked = tensors, op.outputs, filled, tuple(wanted)
        else:
            counts = [int(op.get_attr(count)) if count else 1 for count in entry.input_counts]
            output_counts = [int(op.get_attr(count)) if count else 1 for count in entry.output_counts]
            given, made = grouped(inputs, counts, tensors), grouped(outputs, output_counts, op.outputs)
            grads = grouped(outputs, output_counts, filled)
            asked = tuple(any(group) for group in split(wanted, counts))
        values: Values = {("i", k): value for k, value in enumerate(given)}
        values.update((("o", k), value) for k, value in enumerate(made))
        values.update((("g", k), value) for k, value in enumerate(grads))
        results = run(plans(asked), values, attributes(op))
        return _checked(entry, results if entry.plain else spread(results, counts), counts, tensors, wanted)

    return gradient


def _checked(
    entry: Entry, results: Sequence[Any], counts: Sequence[int], tensors: Sequence[Any], wanted: Sequence[bool]
) -> list[Any]:
    for k, (gradient, tensor) in enumerate(zip(results, tensors, strict=True)):
        if gradient is not None and not gradient.shape.is_compatible_with(tensor.shape):
            owners = [p.name for p, count in zip(entry.signature.inputs, counts, strict=True) for _ in range(count)]
            check_shape(entry.where, owners[k], tensor.shape, gradient.shape, fits=False)
    return [gradient if asked else None for gradient, asked in zip(results, wanted, strict=True)]


def _attribute_reader(entry: Entry) -> Callable[[Any], dict[str, AttributeValue]]:
    """Return a function that reads an operation's attributes; an eager call leaves out those with default values."""
    declared = list(zip(entry.signature.attributes, entry.attributes, strict=True))

    def plain(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        return [plain(item) for item in value] if isinstance(value, list) else value

    def read(op: Any) -> dict[str, AttributeValue]:  # noqa: ANN401
        values: dict[str, AttributeValue] = {}
        for attribute, name in declared:
            try:
                value = plain(op.get_attr(name))
            except KeyError:
                assert not isinstance(attribute.default, Required)
                values[attribute.name] = attribute.default
                continue
            value = [bool(v) for v in value] if attribute.kind == "bools" else value
            values[attribute.name] = attribute.coerce(value)
        return values

    return read


def _step(key: str) -> Callable[..., Any]:
    """Return the function of an operator that a gradient program calls."""
    entry = ENTRIES.of_key(key)

    def step(*operands: Any, **given: Any) -> Any:  # noqa: ANN401
        results = execute(entry, flattened(operands), complete(entry.signature, given))
        return results[0] if len(results) == 1 else results

    return eager_function(entry, step) if entry.plain else step
