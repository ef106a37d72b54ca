"""What a TensorFlow or Keras model takes: every kind of model as a function of tensors in a row."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from opforge.errors import ArgumentError

__all__ = ["traced"]


def traced(model: Any, given: Sequence[Any] | None, where: str) -> tuple[Callable[..., Any], list[Any]]:  # noqa: ANN401
    """Return a model as a function of tensors in a row, and a ``tf.TensorSpec`` with a name for each of them.

    Args:
        model: what ``opforge.tensorflow.export`` takes.
        given: specifications, tensors or arrays, one per input; None = the model says it.
        where: the model's name, for messages.

    Raises:
        ArgumentError: what the inputs are is not known.
    """
    function, specs = model, given
    if isinstance(model, str | os.PathLike):
        function, specs = _of_saved(model, where)
    elif specs is None and hasattr(model, "structured_input_signature"):
        function, specs = _of_concrete(model, model)
    elif _is_keras(model):
        specs = specs or _keras_inputs(model)
        function = _keras_call(model)
        if specs is None:
            function, specs = _through_saved(model, where)
    elif specs is None:
        called = model if hasattr(model, "input_signature") else getattr(model, "__call__", None)  # noqa: B004
        specs = getattr(called, "input_signature", None)
    if not specs or not callable(function):
        raise _unknown_inputs(where)
    return function, [_named(spec, k) for k, spec in enumerate(specs)]


def _named(spec: Any, index: int) -> Any:  # noqa: ANN401 - a specification, a tensor or an array
    import tensorflow as tf

    name = getattr(spec, "name", None) or f"input_{index}"
    return tf.TensorSpec(spec.shape, spec.dtype, name.split(":")[0])


def _unknown_inputs(where: str) -> ArgumentError:
    expected = "input_signature=[tf.TensorSpec(shape, dtype), ...]"
    return ArgumentError("what the inputs are is not known", where=where, expected=expected)


def _is_keras(model: object) -> bool:
    return any(base.__module__.partition(".")[0] == "keras" for base in type(model).__mro__)


def _keras_inputs(model: Any) -> list[Any] | None:  # noqa: ANN401
    import tensorflow as tf

    known = getattr(model, "inputs", None)
    return [tf.TensorSpec(t.shape, t.dtype, t.name) for t in known] if known else None


def _keras_call(model: Any) -> Callable[..., Any]:  # noqa: ANN401
    """A functional model takes its inputs as one list, a subclass one argument of ``call`` for each."""
    arguments = [p for p in inspect.signature(model.call).parameters.values() if p.default is inspect.Parameter.empty]
    grouped = getattr(model, "inputs", None) is not None or len(arguments) == 1

    def function(*tensors: Any) -> Any:  # noqa: ANN401
        return model(*([list(tensors)] if grouped and len(tensors) > 1 else tensors), training=False)

    return function


def _through_saved(model: Any, where: str) -> tuple[Callable[..., Any], list[Any]]:  # noqa: ANN401
    """Let Keras say what a subclassed model takes, which it knows once the model has been called."""
    from opforge.frameworks.tensorflow._saved import save

    with tempfile.TemporaryDirectory() as folder:
        try:
            save(model, folder)
        except ValueError as problem:
            raise _unknown_inputs(where) from problem
        return _of_saved(folder, where)


def _of_saved(folder: str | os.PathLike[str], where: str) -> tuple[Callable[..., Any], list[Any]]:
    from opforge.frameworks.tensorflow._saved import load

    loaded = load(folder)
    concrete = loaded.signatures.get("serving_default") if hasattr(loaded, "signatures") else None
    if concrete is None and callable(loaded):
        concrete = loaded.__call__.concrete_functions[0]
    if concrete is None:
        raise ArgumentError("the SavedModel has neither a serving signature nor a call", where=where)
    return _of_concrete(concrete, loaded)


def _of_concrete(concrete: Any, owner: Any) -> tuple[Callable[..., Any], list[Any]]:  # noqa: ANN401
    positional, named = concrete.structured_input_signature
    kept = list(named)

    def run(*tensors: Any) -> Any:  # noqa: ANN401 - signatures take their tensors by name
        first = len(tensors) - len(kept)
        return concrete(*tensors[:first], **dict(zip(kept, tensors[first:], strict=True)))

    run.owner = owner  # type: ignore[attr-defined] # its variables live as long as it does
    return run, [*positional, *named.values()]
