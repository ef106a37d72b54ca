"""Calls of operators on JAX arrays and tracers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from opforge.build import LoadedLibrary
from opforge.errors import ArgumentError
from opforge.frameworks._entries import function_of_entry
from opforge.frameworks._programs import converted, grouped
from opforge.frameworks.jax._entries import ENTRIES, Entry
from opforge.frameworks.jax._gradients import differentiable
from opforge.frameworks.jax._raw import GUARDS, Static, infer
from opforge.schema import DType, Operator, Signature
from opforge.schema.attributes import coerce_all

__all__ = ["call", "decomposed", "function", "register", "register_library", "specialize"]


def register(operator: Operator) -> Entry:
    """Make the operator known to XLA under its key ``domain::Name:version``; doing it again changes nothing.

    The kernel library is compiled, or taken from the cache, here. Functions saved by ``jax.export`` need this before
    they are called.

    Raises:
        ArgumentError: another operator of this name and version is registered; the message names both.
    """
    return ENTRIES.of_operator(operator)


def register_library(library: LoadedLibrary) -> list[Entry]:
    """Make every operator of a kernel library known to XLA."""
    return ENTRIES.register_library(library)


@functools.lru_cache(maxsize=4096)
def _compiled(entry: Entry, static: Static) -> Callable[..., Any]:
    """The operator as one compiled call: without it every primitive around the kernel is dispatched by itself."""
    function = differentiable(entry, static)
    outputs = entry.signature.outputs
    if not any(p.optional or p.variadic for p in outputs):
        single = len(outputs) == 1

        def simple(*tensors: Any) -> Any:  # noqa: ANN401
            results = function(*tensors)
            return results[0] if single else results

        return _jit(simple, entry)

    def regrouped(*tensors: Any) -> Any:  # noqa: ANN401
        results = grouped(outputs, infer(entry, static, tensors).output_counts, function(*tensors))
        return results[0] if len(results) == 1 else tuple(results)

    return _jit(regrouped, entry)


def _jit(function: Callable[..., Any], entry: Entry) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = entry.where.replace("::", "_").replace(".", "_")  # in profiles
    return cast("Callable[..., Any]", jax.jit(function, inline=True))


def specialize(operator: Operator) -> Callable[..., Any]:
    """Return what a call with arrays in a row runs; see ``opforge.schema.hosts``."""
    entry = ENTRIES.of_operator(operator)
    signature = entry.signature
    count = len(signature.inputs)
    plain = not any(p.optional or p.variadic for p in signature.inputs)
    required = any(a.required for a in signature.attributes)
    shortest = None
    if plain and not required:
        shortest = _compiled(entry, (tuple(a.default for a in signature.attributes), None))

    def function(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        if shortest is not None and not attributes and len(tensors) == count:
            for tensor in tensors:
                if not isinstance(tensor, jax.Array):
                    break
            else:
                return shortest(*tensors)
        return call(operator, operator.arrange(tensors, {}), attributes)

    return function


def call(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Compute the operator on arranged tensors: one entry per parameter, a tuple for the variadic one."""
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
    signature = entry.signature
    _require_concrete(entry.where, attributes)
    values = tuple(coerce_all(signature.attributes, attributes, entry.where).values())
    groups = _converted(signature, tensors)
    counts = tuple(map(len, groups))
    simple = all(c == 1 for c in counts) and not signature.variadic
    return _compiled(entry, (values, None if simple else counts))(*[t for group in groups for t in group])


def decomposed(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Compute a formula operator with JAX's own operators, on arranged tensors."""
    from opforge.codegen.jax_decomposition import decomposition

    formula: Any = operator.formula
    _require_concrete(operator.qualified_name, attributes)
    values = operator.coerce(attributes)
    given = [t for group in _converted(operator.signature, tensors) for t in group]
    operator.bind([t.shape for t in given], [DType.parse(np.dtype(t.dtype)) for t in given], values, guards=GUARDS)
    return decomposition(formula)(*given, **values)


def _require_concrete(where: str, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        if isinstance(value, jax.core.Tracer):
            raise ArgumentError(
                "an attribute must be known while tracing",
                where=f"{where}, attribute {name}",
                expected="a Python value",
                got="a traced array",
                hint="mark the argument static (jax.jit(..., static_argnames=...)), or declare it as an input",
            )


def _converted(signature: Signature, tensors: Sequence[Any]) -> list[list[Any]]:
    """Turn numbers and NumPy arrays into JAX arrays; a Python number takes the dtype of its type variable."""
    known: dict[str, Any] = {}
    for parameter, value in zip(signature.inputs, tensors, strict=True):
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, jax.Array | np.ndarray):
                known.setdefault(parameter.type, item.dtype)

    def convert(value: Any, dtype: Any) -> Any:  # noqa: ANN401
        if isinstance(value, jax.Array):
            return value
        return jnp.asarray(value, dtype if isinstance(value, int | float) else None)

    return converted(signature, tensors, known, convert)
