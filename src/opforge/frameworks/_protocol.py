"""What a framework host offers; the modules in this folder's subfolders are such objects.

``opforge.schema.hosts`` finds a host by the top-level module of a call's first tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from opforge.schema import Operator

__all__ = ["Framework"]


class Framework(Protocol):
    """A host. Modules satisfy this protocol by their functions."""

    name: str

    def version(self) -> str:
        """Return the framework's version."""
        ...

    def register(self, operator: Operator) -> Any:  # noqa: ANN401 - a handle of the framework
        """Make the operator known to the framework and return the framework's own handle of it.

        Registering an operator again changes nothing.
        """
        ...

    def call(self, operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Compute the operator.

        Args:
            operator: what to compute.
            tensors: one entry per input parameter; None = absent, a tuple for the variadic one.
            attributes: as the caller gave them.

        Returns:
            One tensor, or a tuple where the signature has several outputs.
        """
        ...

    def specialize(self, operator: Operator) -> Callable[..., Any]:
        """Return a function of ``(*tensors, **attributes)`` that computes the operator with little overhead."""
        ...
