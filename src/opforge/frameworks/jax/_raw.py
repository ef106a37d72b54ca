"""The call of an operator's kernel: shapes by the schema's rule, then a custom call; with its batching rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np

from opforge.errors import UnsupportedError
from opforge.frameworks.jax import _batching
from opforge.frameworks.jax._adapter import TARGET
from opforge.frameworks.jax._entries import Entry
from opforge.frameworks.jax._lowering import formula_call
from opforge.schema import ABSENT, Binding, DType, Guards
from opforge.schema.arguments import argument_dtype
from opforge.schema.attributes import AttributeValue

__all__ = ["GUARDS", "Static", "infer", "raw"]

Static = tuple[tuple[AttributeValue, ...], tuple[int, ...] | None]
"""What of a call is known while tracing: attribute values in declared order, and tensors per input parameter (None =
one each)."""


def _decide(condition: Any) -> bool:  # noqa: ANN401 - a bool, or a comparison of symbolic dimensions
    try:
        return bool(condition)
    except Exception:  # jax.export: the comparison is inconclusive
        return False


GUARDS = Guards(decide=_decide, require=_decide)


def infer(entry: Entry, static: Static, tensors: Sequence[Any]) -> Binding:
    """Check a call and infer its outputs.

    Args:
        entry: the operator.
        static: see `Static`.
        tensors: anything with shape and dtype, flat.

    Raises:
        ArgumentError: wrong count, rank or dimension.
        DtypeError: wrong dtype.
        UnsupportedError: an output's size depends on data, or its dtype needs ``jax_enable_x64``.
    """
    attributes, counts = static
    rest = iter(tensors)
    shapes: list[Any] = []
    dtypes: list[DType | None] = []
    for parameter, count in zip(entry.signature.inputs, counts or [1] * len(tensors), strict=True):
        taken = [next(rest) for _ in range(count)]
        shapes += [tensor.shape for tensor in taken] or [ABSENT]
        dtypes += [argument_dtype(np.dtype(t.dtype), parameter, entry.types, entry.where) for t in taken] or [None]
    if entry.signature.variadic and counts and counts[-1] == 0:
        shapes.pop(), dtypes.pop()
    given = dict(zip((a.name for a in entry.signature.attributes), attributes, strict=True))
    return entry.signature.bind(shapes, dtypes, given, where=entry.where, types=entry.types, guards=GUARDS)


def _result(entry: Entry, shape: Any, dtype: DType | None) -> jax.ShapeDtypeStruct:  # noqa: ANN401
    if shape is None or any(size is None for size in shape) or dtype is None:
        raise UnsupportedError(
            "an output's size depends on data",
            where=entry.where,
            expected="sizes that follow from the inputs' shapes, as JAX needs them while tracing",
            hint="compute this operator outside of JAX, with NumPy arrays",
        )
    if jax.dtypes.canonicalize_dtype(dtype.numpy) != dtype.numpy:
        raise UnsupportedError(
            "an output has a 64-bit type",
            where=entry.where,
            got=dtype.name,
            hint='switch 64-bit types on: jax.config.update("jax_enable_x64", True)',
        )
    return jax.ShapeDtypeStruct(shape, dtype.numpy)


def _attribute(value: AttributeValue, kind: str) -> Any:  # noqa: ANN401
    """Give an attribute as the handler reads it."""
    match kind:
        case "float":
            return np.float64(value)  # type: ignore[arg-type]
        case "int":
            return np.int64(value)  # type: ignore[arg-type]
        case "bool":
            return np.bool_(value)
        case "ints" | "bools":
            return np.asarray(value, np.int64)
        case "floats":
            return np.asarray(value, np.float64)
        case "strings":
            return {f"{k:06d}": text for k, text in enumerate(value)}  # type: ignore[arg-type]
        case _:
            return value


def raw(entry: Entry, static: Static) -> Callable[..., tuple[Any, ...]]:
    """Return the kernel call as a function of flat tensors that gives flat outputs; not differentiable."""
    attributes, counts = static
    given: dict[str, Any] = {
        f"a_{declared.name}": _attribute(value, declared.kind)
        for declared, value in zip(entry.signature.attributes, attributes, strict=True)
    }
    if counts is not None:
        given["counts"] = np.asarray(counts, np.int64)

    def call(*tensors: Any) -> tuple[Any, ...]:  # noqa: ANN401
        binding = infer(entry, static, tensors)
        rows = zip(binding.output_shapes, binding.output_dtypes, strict=True)
        results = [_result(entry, shape, dtype) for shape, dtype in rows]
        foreign = jax.ffi.ffi_call(TARGET, results, has_side_effect=not entry.is_pure)

        def custom(*operands: Any) -> Sequence[Any]:  # noqa: ANN401
            return cast("Sequence[Any]", foreign(*operands, operator=entry.key, **given))

        if entry.is_formula:
            return tuple(formula_call(entry, attributes, results, custom, tensors))
        return tuple(custom(*tensors))

    batched = jax.custom_batching.custom_vmap(call)

    def rule(size: int, in_batched: Sequence[bool], *tensors: Any) -> tuple[tuple[Any, ...], tuple[bool, ...]]:  # noqa: ANN401
        if _batching.is_elementwise(entry) and counts is None:
            results = _batching.broadcasting(entry, batched, size, in_batched, tensors)
        else:
            results = _batching.sequential(batched, size, in_batched, tensors)
        return results, (True,) * len(results)

    batched.def_vmap(rule)
    call.__name__ = entry.key.replace("::", "_").replace(":", "_v").replace(".", "_")
    return cast("Callable[..., tuple[Any, ...]]", batched)
