"""An operator as a layer."""

from __future__ import annotations

from typing import Any

import torch

from opforge.errors import ArgumentError
from opforge.schema import Operator

__all__ = ["Module"]


class Module(torch.nn.Module):
    """A layer that computes an operator, for ``torch.nn.Sequential`` and the like.

    ``Module(clip_sigmoid, lo=0.2)`` keeps attributes; ``Module(mod_sigmoid, threshold=torch.nn.Parameter(...))``
    keeps an input: a Parameter is trained with the layer, another tensor is a buffer. The remaining inputs are those
    of ``forward``, in the order of the signature.
    """

    def __init__(self, operator: Operator, **fixed: Any) -> None:  # noqa: ANN401
        """Keep the operator, its attributes and its own inputs.

        Args:
            operator: what to compute.
            **fixed: attributes, and inputs by name (a Parameter or a tensor).

        Raises:
            ArgumentError: a name is neither an input nor an attribute, or an input is no tensor.
        """
        super().__init__()
        self.operator = operator
        inputs = [p.name for p in operator.signature.inputs]
        self._own = tuple(name for name in inputs if name in fixed)
        for name in self._own:
            value = fixed.pop(name)
            if isinstance(value, torch.nn.Parameter):
                self.register_parameter(name, value)
            elif isinstance(value, torch.Tensor):
                self.register_buffer(name, value)
            else:
                raise ArgumentError(
                    "an input is no tensor", where=f"{operator.qualified_name}, input {name}", got=type(value).__name__
                )
        operator.coerce({**{a.name: a.default for a in operator.signature.attributes if not a.required}, **fixed})
        self.attributes = dict(fixed)

    def forward(self, *tensors: torch.Tensor) -> Any:  # noqa: ANN401 - a tensor, or a tuple of them
        """Compute the operator on the inputs that are not the layer's own."""
        if not self._own:
            return self.operator(*tensors, **self.attributes)
        rest = iter(tensors)
        inputs: list[Any] = []
        for parameter in self.operator.signature.inputs:
            if parameter.name in self._own:
                inputs.append(getattr(self, parameter.name))
            elif parameter.variadic:
                inputs.extend(rest)
            else:
                value = next(rest, None)
                inputs.append(value)
        return self.operator(*inputs, *rest, **self.attributes)

    def extra_repr(self) -> str:
        """Show the operator and its attributes."""
        words = [self.operator.qualified_name, *(f"{name}={value!r}" for name, value in self.attributes.items())]
        return ", ".join(words)
