"""The lazy table from an argument's top-level module to the framework host that takes it.

This is the one upward edge of the layering: schema names the host modules as text and imports one on the
first call that needs it.

A host module offers

    call(operator, tensors, attributes)   tensors: one entry per parameter of the signature, in order; an absent
                                          optional is None, the variadic input a tuple. attributes: as the
                                          caller gave them (the host coerces them by ``operator.signature``).
    specialize(operator) -> function      optional: returns what is called instead, with the caller's own
                                          ``*tensors, **attributes``; used for calls without keyword tensors,
                                          so that a host can make the hot path as short as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from opforge.errors import Candidate, CandidateError

if TYPE_CHECKING:
    from opforge.schema.operator import Operator

__all__ = ["HOSTS", "NUMPY_HOST", "host_of", "host_of_type", "route"]

NUMPY_HOST: Final = "opforge.frameworks.numpy_host"

HOSTS: Final[dict[str, str]] = {
    "torch": "opforge.frameworks.torch",
    "tensorflow": "opforge.frameworks.tensorflow",
    "keras": "opforge.frameworks.tensorflow",
    "jax": "opforge.frameworks.jax",
    "jaxlib": "opforge.frameworks.jax",
    "numpy": NUMPY_HOST,
    "ml_dtypes": NUMPY_HOST,
    "builtins": NUMPY_HOST,
    "opforge": "opforge.expr.tensor_trace",  # symbolic tensors, while a gradient is traced
}
"""Top-level module of an argument's type -> module of the host."""


def host_of_type(kind: type) -> str | None:
    """Find the host module that takes values of this type; a subclass goes where its base goes."""
    for base in kind.__mro__:
        name = base.__module__.partition(".")[0]
        if base is not object and name in HOSTS:
            return HOSTS[name]
    return None


def host_of(tensors: Iterable[object]) -> str | None:
    """Find the host module for a call's tensors.

    The first tensor of a framework decides; NumPy arrays and Python numbers go along with it, and to the NumPy
    host where there is none.
    """
    found: str | None = None
    for value in _flatten(tensors):
        host = host_of_type(type(value))
        if host is not None and host != NUMPY_HOST:
            return host
        found = found or host
    return found


def route(operator: Operator, tensors: Iterable[object]) -> tuple[str, ModuleType]:
    """Import the host for a call's tensors and give its name and module.

    Raises:
        CandidateError: no host takes these values; lists those there are.
    """
    values = list(_flatten(tensors))
    host = host_of(values) or (NUMPY_HOST if not values else None)
    if host is None:
        kinds = ", ".join(dict.fromkeys(f"{type(v).__module__}.{type(v).__qualname__}" for v in values))
        raise CandidateError(
            f"no framework here takes arguments of type {kinds}",
            [
                Candidate(name, f"takes values of package {name}")
                for name in HOSTS
                if name not in ("builtins", "opforge")
            ],
            where=operator.qualified_name,
            hint="pass torch, TensorFlow or JAX tensors, NumPy arrays or numbers",
        )
    return host, import_module(host)


def specialized(module: ModuleType, operator: Operator) -> Callable[..., Any]:
    """Give the function that a host wants called for an operator, taking ``*tensors, **attributes``."""
    specialize = getattr(module, "specialize", None)
    if specialize is not None:
        return specialize(operator)  # type: ignore[no-any-return]

    def call(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401 - tensors of any framework
        return module.call(operator, operator.arrange(tensors, {}), attributes)

    return call


def _flatten(tensors: Iterable[object]) -> Iterable[object]:
    """Give tensors and the items of sequences of tensors; a sequence without any stands for itself."""
    for value in tensors:
        if value is None:
            continue
        if isinstance(value, list | tuple) and value and not isinstance(value[0], int | float | list | tuple):
            yield from _flatten(value)
        elif not isinstance(value, Mapping):
            yield value
