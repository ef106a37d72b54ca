"""NumPy arrays in and out of JAX, and one backward pass: what checks need of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opforge.schema import AnyDim, Operator

__all__ = ["MODES", "compute", "enable_x64", "gradients", "refuses", "second_gradients", "watch"]

Array = np.ndarray[Any, Any]
MODES = ("eager", "traced")
"""How an operator can be called: as it is, or in ``jax.jit``, which compiles too."""


def enable_x64(enabled: bool) -> AbstractContextManager[None]:
    """Switch 64-bit types on or off inside; where JAX keeps this has changed over its versions."""
    found: Any = jax.enable_x64 if hasattr(jax, "enable_x64") else import_module("jax.experimental").enable_x64
    return found(enabled)  # type: ignore[no-any-return]


def _call(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    result = operator(*tensors, **attributes)
    return list(result) if isinstance(result, tuple | list) else [result]


def compute(
    operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any], mode: str = "eager"
) -> list[Array]:
    """Run the operator in one of ``MODES``, with 64-bit types."""
    with enable_x64(True):
        tensors = [None if a is None else jnp.asarray(a) for a in arrays]

        def call(*given: Any) -> list[Any]:  # noqa: ANN401
            return _call(operator, given, attributes)

        return [np.asarray(t) for t in (call if mode == "eager" else jax.jit(call))(*tensors)]


def watch(operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> Callable[[], None]:
    """Return a call that records the operator for a backward pass which never comes."""
    wanted = [k for k, a in enumerate(arrays) if a is not None and a.dtype.kind not in "biu"]

    def forward() -> None:
        with enable_x64(True):
            tensors = [None if a is None else jnp.asarray(a) for a in arrays]

            def of_wanted(*given: Any) -> list[Any]:  # noqa: ANN401
                every = list(tensors)
                for k, value in zip(wanted, given, strict=True):
                    every[k] = value
                return _call(operator, every, attributes)

            jax.block_until_ready(jax.vjp(of_wanted, *(tensors[k] for k in wanted))[0])

    return forward


def refuses(operator: Operator) -> str | None:
    """Say why JAX cannot have an operator: it must know shapes while tracing."""
    if any(isinstance(dim, AnyDim) for output in operator.signature.outputs for dim in output.dims):
        return "an output's size depends on data, and JAX must know it while tracing"
    return None


def gradients(
    operator: Operator,
    arrays: Sequence[Array | None],
    grads: Sequence[Array],
    attributes: Mapping[str, Any],
    mode: str = "eager",
) -> list[Array | None]:
    """Run the operator and its backward pass; one gradient per input, None for integers and absent ones."""
    with enable_x64(True):
        tensors = [None if a is None else jnp.asarray(a) for a in arrays]
        wanted = [k for k, t in enumerate(tensors) if t is not None and jnp.issubdtype(t.dtype, jnp.floating)]

        def backward(*given: Any) -> Any:  # noqa: ANN401
            def of_wanted(*leaves: Any) -> list[Any]:  # noqa: ANN401
                every = list(given)
                for k, value in zip(wanted, leaves, strict=True):
                    every[k] = value
                return _call(operator, every, attributes)

            outputs, pullback = jax.vjp(of_wanted, *(given[k] for k in wanted))
            return pullback([_cotangent(g, o) for g, o in zip(grads, outputs, strict=True)])

        found = (backward if mode == "eager" else jax.jit(backward))(*tensors)
        values: list[Array | None] = [None] * len(tensors)
        for k, gradient in zip(wanted, found, strict=True):
            values[k] = np.asarray(gradient)
        return values


def _cotangent(grad: Array, output: Any) -> Any:  # noqa: ANN401
    """Give the gradient of an output; of an integer one it has JAX's type without values."""
    if jnp.issubdtype(output.dtype, jnp.floating):
        return jnp.asarray(grad, output.dtype)
    return np.zeros(output.shape, jax.dtypes.float0)


def second_gradients(
    operator: Operator,
    arrays: Sequence[Array | None],
    grads: Sequence[Array],
    weights: Sequence[Array | None],
    attributes: Mapping[str, Any],
) -> list[Array | None]:
    """Differentiate the sum of ``weights`` times the first gradients; one per input, None for integers."""
    with enable_x64(True):
        tensors = [None if a is None else jnp.asarray(a) for a in arrays]
        wanted = [k for k, t in enumerate(tensors) if t is not None and jnp.issubdtype(t.dtype, jnp.floating)]

        def of_wanted(*leaves: Any) -> list[Any]:  # noqa: ANN401
            every = list(tensors)
            for k, value in zip(wanted, leaves, strict=True):
                every[k] = value
            return _call(operator, every, attributes)

        def first(*leaves: Any) -> list[Any]:  # noqa: ANN401
            outputs, pullback = jax.vjp(of_wanted, *leaves)
            found = pullback([_cotangent(g, o) for g, o in zip(grads, outputs, strict=True)])
            return [g for k, g in zip(wanted, found, strict=True) if weights[k] is not None]

        made, pullback = jax.vjp(first, *(tensors[k] for k in wanted))
        given = [w for k in wanted if (w := weights[k]) is not None]
        second = pullback([jnp.asarray(w, g.dtype) for w, g in zip(given, made, strict=True)])
        values: list[Array | None] = [None] * len(tensors)
        for k, gradient in zip(wanted, second, strict=True):
            values[k] = np.asarray(gradient)
        return values
