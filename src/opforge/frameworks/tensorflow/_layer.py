"""An operator as a Keras layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from opforge.errors import ArgumentError
from opforge.frameworks._entries import require_operator
from opforge.schema import DType, Operator, registry

__all__ = ["Layer"]


@keras.saving.register_keras_serializable(package="opforge")
class Layer(keras.layers.Layer):  # type: ignore[misc]
    """A layer that computes an operator.

    ``Layer(clip_sigmoid, lo=0.2)`` keeps attributes; ``Layer(mod_sigmoid, threshold=0.5)`` keeps an input as a
    weight that is trained with the model (``trainable=False`` keeps it as it is). The remaining inputs are those of
    the call, in the order of the signature. The configuration names the operator, so a saved model that holds such a
    layer loads wherever the operator is declared.
    """

    def __init__(self, operator: Operator | str, *, name: str | None = None, **fixed: Any) -> None:  # noqa: ANN401
        """Keep the operator, its attributes and its own inputs.

        Args:
            operator: what to compute, or ``domain::Name:version`` of a declared one.
            name: of the layer.
            **fixed: attributes, inputs by name (numbers or arrays), and options of ``keras.layers.Layer`` such as
                ``dtype`` and ``trainable``.

        Raises:
            ArgumentError: a name is neither an input, an attribute nor an option; or there is no such operator.
        """
        self.operator = _declared(operator) if isinstance(operator, str) else operator
        require_operator(self.operator, "opforge.tensorflow.Layer")
        signature = self.operator.signature
        inputs = {p.name for p in signature.inputs}
        attributes = {a.name for a in signature.attributes}
        options = {k: v for k, v in fixed.items() if k in _OPTIONS and k not in inputs | attributes}
        super().__init__(name=name, **options)
        self._start = {k: _array(v) for k, v in fixed.items() if k in inputs}
        self.attributes = {k: v for k, v in fixed.items() if k in attributes}
        unknown = sorted(set(fixed) - set(options) - set(self._start) - set(self.attributes))
        if unknown:
            raise ArgumentError(
                "unknown keyword",
                where=f"Layer({self.operator.qualified_name})",
                expected=", ".join(sorted(inputs | attributes)),
                got=", ".join(unknown),
            )
        self.operator.coerce({**{a.name: a.default for a in signature.attributes if not a.required}, **self.attributes})
        self._own: dict[str, Any] = {}

    def build(self, input_shape: Any) -> None:  # noqa: ANN401
        """Make the weights that the layer keeps."""
        for parameter, value in self._start.items():
            array = tf.convert_to_tensor(value, self.variable_dtype if isinstance(value, int | float) else None)
            self._own[parameter] = self.add_weight(
                shape=tuple(array.shape),
                dtype=array.dtype.name,
                initializer=keras.initializers.Constant(array.numpy()),
                trainable=self.trainable and array.dtype.is_floating,
                name=parameter,
            )
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:  # noqa: ANN401 - a tensor, or a list of them
        """Compute the operator on the inputs that are not the layer's own."""
        rest = iter(inputs if isinstance(inputs, list | tuple) else [inputs])
        given: list[Any] = []
        for parameter in self.operator.signature.inputs:
            if parameter.name in self._own:
                own = tf.convert_to_tensor(self._own[parameter.name])
                given.append(tf.cast(own, self.compute_dtype) if own.dtype.is_floating else own)
            elif parameter.variadic:
                given.extend(rest)
            else:
                given.append(next(rest, None))
        return self.operator(*given, *rest, **self.attributes)

    def get_config(self) -> dict[str, Any]:
        """Return what `from_config` needs; weights are saved with the model's."""
        start = {k: v if isinstance(v, int | float) else _stored(v) for k, v in self._start.items()}
        return {**super().get_config(), "operator": self.operator.key, **self.attributes, **start}


_OPTIONS = ("trainable", "dtype", "autocast", "activity_regularizer")


def _stored(value: Any) -> dict[str, Any]:  # noqa: ANN401 - an array, a tensor or a list
    """Write an array as JSON can hold it; its dtype would be lost in a list."""
    array = np.asarray(value)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "values": array.reshape(-1).tolist()}


def _array(value: Any) -> Any:  # noqa: ANN401 - what the caller gave, or what `_stored` made of it
    if not isinstance(value, Mapping):
        return value
    return np.array(value["values"], DType.parse(value["dtype"]).numpy).reshape(value["shape"])


def _declared(key: str) -> Operator:
    name, _, version = key.rpartition(":")
    domain, _, short = name.partition("::")
    found = registry.find(domain, short, int(version)) if version.isdigit() else None
    if found is None:
        raise ArgumentError(
            "the operator is not declared in this process",
            where="opforge.tensorflow.Layer",
            got=key,
            hint="import the package that declares it, or opforge.load it, before the model is loaded",
        )
    return found
