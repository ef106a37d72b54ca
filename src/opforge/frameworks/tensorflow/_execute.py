"""One call of a registered operator on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from opforge.errors import OpforgeError
from opforge.frameworks.tensorflow._entries import Entry
from opforge.schema import ABSENT, Binding, DType
from opforge.schema.arguments import argument_dtype
from opforge.schema.attributes import AttributeValue

__all__ = ["bind", "execute"]


def bind(entry: Entry, groups: Sequence[Sequence[Any]], attributes: Mapping[str, AttributeValue]) -> Binding:
    """Check a call by the schema's rule and infer its outputs; unknown dimensions and ranks are taken as such."""
    shapes: list[Any] = []
    dtypes: list[DType | None] = []
    for parameter, group in zip(entry.signature.inputs, groups, strict=True):
        if not group and not parameter.variadic:
            shapes.append(ABSENT)
            dtypes.append(None)
        for tensor in group:
            shapes.append(None if tensor.shape.rank is None else list(tensor.shape))
            dtypes.append(argument_dtype(tensor.dtype.as_numpy_dtype, parameter, entry.types, entry.where))
    return entry.signature.bind(shapes, dtypes, attributes, where=entry.where, types=entry.types)


def execute(entry: Entry, groups: Sequence[Sequence[Any]], attributes: Mapping[str, AttributeValue]) -> list[Any]:
    """Compute the operator.

    Args:
        entry: the operator.
        groups: tensors of each input parameter.
        attributes: coerced values of all declared attributes.

    Returns:
        One value per output parameter: a tensor, None where it is absent, a list for the variadic one.

    Raises:
        ArgumentError: wrong count, rank or dimension.
        DtypeError: wrong dtype.
        tf.errors.InvalidArgumentError: a running kernel refuses a value.
    """
    declared = entry.signature.attributes
    given: dict[str, Any] = {
        name: list(value) if isinstance(value := attributes[a.name], tuple) else value
        for name, a in zip(entry.attributes, declared, strict=True)
    }
    binding: Binding | None = None
    if not entry.plain:
        binding = bind(entry, groups, attributes)
        given |= {
            count: made
            for count, made in zip(entry.output_counts, binding.output_counts, strict=True)
            if count and count not in entry.input_counts
        }
    tensors = [list(g) if count else g[0] for g, count in zip(groups, entry.input_counts, strict=True)]
    try:
        results = entry.function(*tensors, **given)
    except (ValueError, TypeError, tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        if not isinstance(error, OpforgeError):
            bind(entry, groups, attributes)  # says in our words what is wrong with shapes and dtypes
        raise
    outputs = list(results) if len(entry.output_counts) > 1 else [results]
    values = [
        value if p.variadic else (value[0] if value else None) if count else value
        for p, count, value in zip(entry.signature.outputs, entry.output_counts, outputs, strict=True)
    ]
    if not tf.executing_eagerly():
        _set_shapes(values, binding or bind(entry, groups, attributes))
    return values


def _set_shapes(values: Sequence[Any], binding: Binding) -> None:
    """Tell TensorFlow shapes that depend on attributes, which its shape functions cannot read."""
    flat = [t for value in values if value is not None for t in (value if isinstance(value, list) else [value])]
    for tensor, shape in zip(flat, binding.output_shapes, strict=True):
        if shape is not None and tensor.shape.rank is None:
            tensor.set_shape(shape)
        elif shape is not None and not tensor.shape.is_fully_defined():
            tensor.set_shape([size if isinstance(size, int) else None for size in shape])
