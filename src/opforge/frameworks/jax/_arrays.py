"""NumPy arrays in and out of JAX, and one backward pass: what checks need of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opforge.schema import AnyDim, Operator

__all__ = ["compute", "enable_x64", "gradients", "refuses"]

Array = np.ndarray[Any, Any]


def enable_x64(enabled: bool) -> AbstractContextManager[None]:
    """Switch 64-bit types on or off inside; where JAX keeps this has changed over its versions."""
    found: Any = jax.enable_x64 if hasattr(jax, "enable_x64") else import_module("jax.experimental").enable_x64
    return found(enabled)  # type: ignore[no-any-return]


def compute(operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[Array]:
    """Run the operator eagerly, with 64-bit types."""
    with enable_x64(True):
        result = operator(*(None if a is None else jnp.asarray(a) for a in arrays), **attributes)
        return [np.asarray(t) for t in (result if isinstance(result, tuple | list) else [result])]


def refuses(operator: Operator) -> str | None:
    """Say why JAX cannot have an operator: it must know shapes while tracing."""
    if any(isinstance(dim, AnyDim) for output in operator.signature.outputs for dim in output.dims):
        return "an output's size depends on data, and JAX must know it while tracing"
    return None


def gradients(
    operator: Operator, arrays: Sequence[Array | None], grads: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Array | None]:
    """Run the operator and its backward pass; one gradient per input, None for integers and absent ones."""
    with enable_x64(True):
        tensors = [None if a is None else jnp.asarray(a) for a in arrays]
        wanted = [k for k, t in enumerate(tensors) if t is not None and jnp.issubdtype(t.dtype, jnp.floating)]

        def of_wanted(*given: Any) -> list[Any]:  # noqa: ANN401
            every = list(tensors)
            for k, value in zip(wanted, given, strict=True):
                every[k] = value
            result = operator(*every, **attributes)
            return list(result) if isinstance(result, tuple | list) else [result]

        outputs, backward = jax.vjp(of_wanted, *(tensors[k] for k in wanted))
        found = backward([jnp.asarray(g, o.dtype) for g, o in zip(grads, outputs, strict=True)])
        values: list[Array | None] = [None] * len(tensors)
        for k, gradient in zip(wanted, found, strict=True):
            values[k] = np.asarray(gradient)
        return values
