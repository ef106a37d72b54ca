"""Checks of gradients beside their values: strides of what comes in, shapes and dtypes of what comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from opforge.errors import OpforgeError
from opforge.schema import Operator
from opforge.verify import _variants
from opforge.verify._announced import announce
from opforge.verify._rows import Array, Row, choices, label, same_bits, widest
from opforge.verify.cases import arrays, cases_of, differentiable_cases, parameters
from opforge.verify.hosts import Host

__all__ = ["gradient_layouts", "gradient_shapes", "roomy"]


def gradient_layouts(operator: Operator, host: Host, seed: int) -> Iterator[Row]:
    """Gradients for output gradients and inputs with other strides: the bits that dense copies give.

    A sum over the output gives a gradient of stride 0, which a backward pass that reads memory in order takes wrong.
    """
    types = widest(operator)
    point = next((p for p in differentiable_cases(operator, types, seed) if roomy(p[1])), None)
    if point is None:
        return
    case, inputs = point
    rng = np.random.default_rng([seed, 31])
    announce("gradient layouts", case.name, host.name, label(types))
    outputs = host.compute(operator, inputs, case.attributes)
    dense = [np.asarray(rng.standard_normal(out.shape)).astype(out.dtype) for out in outputs]
    changes = [(f"gradient of {operator.signature.outputs[0].name} {name}", inputs, [*new, *dense[1:]])
               for name, new in _layouts_of(dense[:1])]  # fmt: skip
    for index, (parameter, value) in enumerate(zip(parameters(operator, inputs), inputs, strict=True)):
        if value is None or value.dtype.kind in "biu":
            continue
        for name, (other,) in _layouts_of([value]):
            changes.append((f"{parameter.name} {name}", [*inputs[:index], other, *inputs[index + 1 :]], dense))
    for name, values, grads in changes:
        announce("gradient layouts", f"{case.name}, {name}", host.name, label(types))
        copies = [None if v is None else np.ascontiguousarray(v).reshape(v.shape) for v in values]
        plain = [np.ascontiguousarray(g).reshape(g.shape) for g in grads]
        try:
            expected = host.gradients(operator, copies, plain, case.attributes)
            got = host.gradients(operator, values, grads, case.attributes)
        except OpforgeError as problem:
            yield Row("gradient layouts", f"{case.name}, {name}", host.name, label(types), False, str(problem))
            continue
        pairs = [(a, b) for a, b in zip(expected, got, strict=True) if a is not None and b is not None]
        found = same_bits([a for a, _ in pairs], [b for _, b in pairs]) if operator.deterministic else ""
        hint = "dense copies of the same values give another gradient, so the backward pass does not honour strides"
        yield Row("gradient layouts", f"{case.name}, {name}", host.name, label(types), not found,
                  f"{hint} ({found})" if found else "")  # fmt: skip


def _layouts_of(arrays: Sequence[Array]) -> Iterator[tuple[str, list[Array]]]:
    for array in arrays:
        yield from ((name, [other]) for name, other in _variants.layouts(array))
        if array.size and array.ndim:
            yield "of stride 0", [np.lib.stride_tricks.as_strided(array, array.shape, (0,) * array.ndim)]


def roomy(inputs: Sequence[Array | None]) -> bool:
    """Whether no input is empty and one of them has dimensions."""
    return all(value is None or value.size for value in inputs) and any(v is not None and v.ndim for v in inputs)


def gradient_shapes(operator: Operator, host: Host, seed: int) -> Iterator[Row]:
    """Each gradient has its own input's shape and dtype, in every choice of dtypes, for empty tensors too."""
    for types in choices(operator):
        if not any(dtype.is_float for dtype in types.values()) and operator.types:
            continue
        found, where = "", ""
        for case in [case for case in cases_of(operator) if case.finite]:
            inputs = arrays(operator, case, types, seed=seed)
            announce("gradient shapes", case.name, host.name, label(types))
            try:
                outputs = host.compute(operator, inputs, case.attributes)
                grads = [np.ones(out.shape, out.dtype) for out in outputs]
                gradients = host.gradients(operator, inputs, grads, case.attributes)
            except OpforgeError as problem:
                found, where = str(problem), case.name  # as other parts say it, so that one cause is said once
                break
            for parameter, value, grad in zip(parameters(operator, inputs), inputs, gradients, strict=True):
                if value is None or grad is None or (value.shape, value.dtype) == (grad.shape, grad.dtype):
                    continue
                found = (
                    f"case {case.name}: the gradient of {parameter.name} is {grad.dtype} {list(grad.shape)}, "
                    f"the input {value.dtype} {list(value.shape)}"
                )
            if found:
                break
        yield Row("gradient shapes", where, host.name, label(types), not found, found)
