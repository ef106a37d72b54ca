"""The eager call of an operator on tensors: straight into TensorFlow's runtime, without the generated function.

The generated function goes through TensorFlow's dispatch and hands over every attribute; here attributes that have
their default values are left out, and what a call's attributes come to is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, core

from opforge.frameworks.tensorflow._entries import Entry
from opforge.frameworks.tensorflow._execute import bind
from opforge.schema.attributes import coerce_all

__all__ = ["DETOURS", "EAGER", "eager_function"]

EAGER: Final = type(tf.constant(0))
"""The class of tensors outside of graphs."""

DETOURS: Final[list[None]] = []
"""Filled while some thread wants calls to go another way (see `decomposing`): every call then looks more closely."""

_LARGEST: Final = 256  # remembered attributes of one operator
_SIMPLE: Final = frozenset({bool, int, float, str})
execute = pywrap_tfe.TFE_Py_FastPathExecute


def flat_attributes(entry: Entry) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """Return a function from a call's attributes to names and values in a row, those with other values than default.

    The function raises what coercing the attributes raises.
    """
    declared = entry.signature.attributes
    known: dict[Any, Sequence[Any]] = {}

    def make(attributes: Mapping[str, Any]) -> Sequence[Any]:
        values = coerce_all(declared, attributes, entry.where)
        row: list[Any] = []
        for attribute, name in zip(declared, entry.attributes, strict=True):
            value = values[attribute.name]
            if attribute.required or repr(value) != repr(attribute.default):  # -0.0 is equal to 0.0
                row += [name, list(value) if isinstance(value, tuple) else value]
        return row

    def flat(attributes: Mapping[str, Any]) -> Sequence[Any]:
        for value in attributes.values():
            if type(value) not in _SIMPLE:
                return make(attributes)
        key = *attributes, *map(repr, attributes.values())  # True and 1, 0.0 and -0.0 are equal, and not the same
        found = known.get(key)
        if found is None:
            found = make(attributes)
            if len(known) < _LARGEST:
                known[key] = found
        return found

    return flat


def eager_function(entry: Entry, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ``(*tensors, **attributes)`` for an operator with one tensor per parameter.

    It is kept in one piece, and has a shorter form for the commonest call (``short``, `Operator.set_route`): packing
    arguments and calling on take a twentieth of the whole each.

    Args:
        entry: the operator.
        otherwise: what is called instead while a graph is made, and with anything but eager tensors.
    """
    name, count, single = entry.name, len(entry.signature.inputs), len(entry.signature.outputs) == 1
    flat = flat_attributes(entry)
    required = any(a.required for a in entry.signature.attributes)

    def function(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        found = context._context
        if not found._thread_local_data.is_eager or len(tensors) != count or DETOURS:
            return otherwise(*tensors, **attributes)
        for tensor in tensors:
            if type(tensor) is not EAGER:
                return otherwise(*tensors, **attributes)
        try:
            if attributes or required:
                result = execute(found, name, None, *tensors, *flat(attributes))
            else:
                result = execute(found, name, None, *tensors)
        except core._NotOkStatusException as error:
            _fail(entry, tensors, attributes, error)
        except core._FallbackException:
            return otherwise(*tensors, **attributes)
        return result if single else tuple(result)

    def unary(x: Any, *more: Any) -> Any:  # noqa: ANN401
        found = context._context
        if more or DETOURS or type(x) is not EAGER or not found._thread_local_data.is_eager:
            return function(x, *more)
        try:
            return execute(found, name, None, x)
        except core._NotOkStatusException as error:
            _fail(entry, (x,), {}, error)
        except core._FallbackException:
            return otherwise(x)

    if count == 1 and single and not required:
        function.short = unary  # type: ignore[attr-defined]
    return function


def _fail(entry: Entry, tensors: Sequence[Any], attributes: Mapping[str, Any], error: Any) -> NoReturn:  # noqa: ANN401
    """Raise in our words what does not fit, else TensorFlow's error; the kernel does not run again."""
    values = coerce_all(entry.signature.attributes, attributes, entry.where)
    bind(entry, [[tensor] for tensor in tensors], values)
    raise core._status_to_exception(error) from None
