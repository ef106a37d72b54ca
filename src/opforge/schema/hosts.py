"""The lazy table from an argument's top-level module to the framework host that takes it.

This is the one upward edge of the layering: schema names the host modules as text and imports one on the
first call that needs it.

A host module offers

    call(operator, tensors, attributes)   tensors: one entry per parameter of the signature, in order; an absent
                                          optional is None, the variadic input a tuple. attributes: as the
                                          caller gave them (the host coerces them by ``operator.signature``).
    specialize(operator) -> function      optional: returns what is called instead, with ``*tensors, **attributes``
                                          by position (variadic tensors at the end), so that a host can make the
                                          hot path as short as it likes.
    decomposed(operator, tensors, attributes)   optional: computes a formula with the framework's own operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from opforge.errors import ArgumentError, Candidate, CandidateError, UnsupportedError

if TYPE_CHECKING:
    from opforge.schema.operator import Operator

__all__ = [
    "HOSTS",
    "NUMPY_HOST",
    "call_numpy",
    "decomposed",
    "host_of_type",
    "load_host",
    "refuse_containers",
    "specialized",
]

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


def load_host(operator: Operator, kind: type) -> bool:
    """Import the host that takes tensors of this type and enter its function in ``operator.routes``."""
    host = host_of_type(kind)
    if host is None or host == NUMPY_HOST:
        return False
    operator.set_route(kind, specialized(import_module(host), operator))
    return True


def decomposed(operator: Operator, tensors: tuple[Any, ...], attributes: dict[str, Any]) -> Any:  # noqa: ANN401
    """Compute a formula operator with the operators of the framework that its tensors belong to.

    Raises:
        UnsupportedError: the operator has no formula.
        ArgumentError: no tensor of a framework is given.
    """
    if operator.formula is None:
        raise UnsupportedError(
            "a kernel operator has no decomposition",
            where=operator.qualified_name,
            expected="an operator declared by a formula",
            hint="call the operator itself",
        )
    for tensor in tensors:
        host = host_of_type(type(tensor))
        if host is not None and host not in (NUMPY_HOST, HOSTS["opforge"]):
            return import_module(host).decomposed(operator, operator.arrange(tensors, {}), attributes)
    raise ArgumentError(
        "a decomposition needs a framework's tensor",
        where=operator.qualified_name,
        expected="a PyTorch tensor or a JAX array",
        got=", ".join(type(tensor).__name__ for tensor in tensors) or "nothing",
        hint="reference() computes with NumPy arrays",
    )


def call_numpy(operator: Operator, tensors: tuple[Any, ...], attributes: dict[str, Any]) -> Any:  # noqa: ANN401
    """Compute on NumPy arrays and numbers.

    Raises:
        CandidateError: there are values that no host takes; lists the hosts.
    """
    arranged = operator.arrange(tensors, {})
    kinds = dict.fromkeys(type(value) for value in _flatten(arranged) if host_of_type(type(value)) is None)
    if kinds:
        names = ", ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
        packages = [name for name in HOSTS if name not in ("builtins", "opforge")]
        raise CandidateError(
            f"no framework here takes arguments of type {names}",
            [Candidate(name, f"takes values of package {name}") for name in packages],
            where=operator.qualified_name,
            hint="pass torch, TensorFlow or JAX tensors, NumPy arrays or numbers",
        )
    refuse_containers(operator, arranged)
    return import_module(NUMPY_HOST).call(operator, arranged, attributes)


def refuse_containers(operator: Operator, arranged: Iterable[object]) -> None:
    """Refuse a list of a framework's tensors where one tensor is wanted: it would become an array without gradient.

    Raises:
        ArgumentError: there is one; a variadic input takes its tensors one after the other.
    """
    for parameter, value in zip(operator.signature.inputs, arranged, strict=True):
        for item in value if parameter.variadic and isinstance(value, tuple) else (value,):
            found = _framework_type(item) if isinstance(item, list | tuple) else None
            if found is not None:
                raise ArgumentError(
                    f"a {type(item).__name__} of tensors stands where one tensor is wanted",
                    where=f"{operator.qualified_name}, argument {parameter.name}",
                    expected="tensors one after the other" if parameter.variadic else "one tensor",
                    got=f"{type(item).__name__} with {found.__module__}.{found.__qualname__}",
                    hint=f"{operator.host_name}(*tensors)" if parameter.variadic else "stack them",
                )


def _framework_type(value: object) -> type | None:
    """Find the type of a tensor of a framework in nested lists."""
    if isinstance(value, list | tuple):
        return next((found for item in value if (found := _framework_type(item)) is not None), None)
    host = host_of_type(type(value))
    return None if host is None or host == NUMPY_HOST else type(value)


def specialized(module: ModuleType, operator: Operator) -> Callable[..., Any]:
    """Give the function that a host wants called for an operator, taking ``*tensors, **attributes``."""
    specialize = getattr(module, "specialize", None)
    if specialize is not None:
        return specialize(operator)  # type: ignore[no-any-return]

    def call(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401 - tensors of any framework
        return module.call(operator, operator.arrange(tensors, {}), attributes)

    return call


def _flatten(tensors: Iterable[object]) -> Iterable[object]:
    """Give the values that stand for a tensor each, without absent ones."""
    for value in tensors:
        if isinstance(value, tuple):
            yield from _flatten(value)
        elif value is not None:
            yield value
