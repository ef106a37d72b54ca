"""Calls of operators on TensorFlow tensors, variables and Keras tensors, and registration on the first of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from opforge.build import LoadedLibrary
from opforge.errors import ArgumentError
from opforge.frameworks._entries import function_of_entry
from opforge.frameworks._programs import converted
from opforge.frameworks.tensorflow._eager import DETOURS, eager_function
from opforge.frameworks.tensorflow._entries import ENTRIES, Entry
from opforge.frameworks.tensorflow._execute import execute
from opforge.schema import Operator, Signature
from opforge.schema.attributes import coerce_all

__all__ = ["call", "decomposed", "decomposing", "function", "register", "register_library", "specialize"]


class _Local(threading.local):
    decomposing = False


_local = _Local()


def register(operator: Operator) -> Entry:
    """Make the operator known to TensorFlow as an operation; doing it again changes nothing.

    The kernel library is compiled, or taken from the cache, here. Graphs and SavedModels need this before they are
    loaded; gradients after loading work too.

    Raises:
        ArgumentError: another operation has the name; the message names both.
    """
    return ENTRIES.of_operator(operator)


def register_library(library: LoadedLibrary) -> list[Entry]:
    """Make every operator of a kernel library known to TensorFlow."""
    return ENTRIES.register_library(library)


def specialize(operator: Operator) -> Callable[..., Any]:
    """Return what a call with tensors in a row runs; see ``opforge.schema.hosts``."""
    entry = ENTRIES.of_operator(operator)

    def general(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        return call(operator, operator.arrange(tensors, {}), attributes)

    return eager_function(entry, general) if entry.plain else general


def call(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Compute the operator on arranged tensors: one entry per parameter, a tuple for the variadic one."""
    if any(_is_keras(t) for value in tensors for t in (value if isinstance(value, tuple) else (value,))):
        return _symbolic(operator, tensors, attributes)
    if _local.decomposing and operator.formula is not None:
        return decomposed(operator, tensors, attributes)
    return _call(ENTRIES.of_operator(operator), tensors, attributes)


def function(key: str) -> Callable[..., Any]:
    """Return an operator of a registered library as a function, for libraries without declarations in Python.

    Args:
        key: ``domain::Name:version``.

    Returns:
        A function of ``(*tensors, **attributes)``: one tensor per parameter of the signature, None for an absent
        optional one, a sequence for the variadic one.

    Raises:
        ArgumentError: no such operator is registered.
    """
    return function_of_entry(ENTRIES.of_key(key), _call)


def _call(entry: Entry, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    values = coerce_all(entry.signature.attributes, attributes, entry.where)
    results = execute(entry, _converted(entry.signature, tensors), values)
    return results[0] if len(results) == 1 else tuple(results)


@contextlib.contextmanager
def decomposing() -> Iterator[None]:
    """Trace formula operators as TensorFlow's own operators, for ``tf.function(jit_compile=True)``.

    XLA compiles no call of a kernel of ours, and a traced call cannot know that it will be compiled by XLA.
    """
    before = _local.decomposing
    _local.decomposing = True
    DETOURS.append(None)
    try:
        yield
    finally:
        DETOURS.pop()
        _local.decomposing = before


def decomposed(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Compute a formula operator with TensorFlow's own operators, on arranged tensors."""
    from opforge.codegen.tensorflow_decomposition import decomposition

    formula: Any = operator.formula
    given = [t for group in _converted(operator.signature, tensors) for t in group]
    return decomposition(formula)(*given, **operator.coerce(attributes))


def _is_keras(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "keras" and type(value).__name__ == "KerasTensor"


def _symbolic(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Put a layer into a functional Keras model."""
    from opforge.frameworks.tensorflow._layer import Layer

    flat = [t for value in tensors if value is not None for t in (value if isinstance(value, tuple) else (value,))]
    if not all(_is_keras(t) for t in flat):
        raise ArgumentError(
            "Keras tensors do not go along with other values",
            where=operator.qualified_name,
            expected="Keras tensors for all inputs",
            hint="opforge.tensorflow.Layer(operator, name_of_input=value) keeps an input of its own",
        )
    return Layer(operator, **attributes)(flat[0] if len(flat) == 1 else flat)


def _converted(signature: Signature, tensors: Sequence[Any]) -> list[list[Any]]:
    """Turn variables, arrays and numbers into tensors; a Python number takes the dtype of its type variable."""
    known: dict[str, Any] = {}
    for parameter, value in zip(signature.inputs, tensors, strict=True):
        for item in value if isinstance(value, tuple) else (value,):
            if hasattr(item, "dtype") and not isinstance(item, int | float):
                known.setdefault(parameter.type, tf.as_dtype(getattr(item.dtype, "name", item.dtype)))

    def convert(value: Any, dtype: Any) -> Any:  # noqa: ANN401
        if isinstance(value, tf.Tensor):
            return value
        weak = isinstance(value, int | float) and not isinstance(value, np.generic)
        return tf.convert_to_tensor(value, dtype if weak else None)

    return converted(signature, tensors, known, convert)
