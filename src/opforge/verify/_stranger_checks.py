"""The parts of a check of a stranger's function in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from opforge.schema import Operator
from opforge.verify import (
    _contract_checks,
    _derivative_checks,
    _gradient_checks,
    _operator_checks,
    _stability_checks,
    _torch_checks,
)
from opforge.verify._rows import Row, choices, label
from opforge.verify.cases import arrays, cases_of, parameters
from opforge.verify.hosts import Host
from opforge.verify.levels import Level

__all__ = ["raw", "torch_parts"]

Parts = Iterator[tuple[str, Callable[[], Iterator[Row]]]]


def torch_parts(operator: Operator, stranger: Any, host: Host, level: Level, seed: int) -> Parts:  # noqa: ANN401
    """Give the parts in order."""
    yield "values", partial(_operator_checks.values, operator, host, max(1, level.layout_cases), seed)
    yield "boundary", partial(_operator_checks.boundary, operator, host, seed)
    if operator.differentiable:
        yield "raw gradient", partial(raw, operator, stranger, seed)
        yield "gradient", partial(_derivative_checks.gradient, operator, host, seed)
        yield "gradient layouts", partial(_gradient_checks.gradient_layouts, operator, host, seed)
        yield "second derivative", partial(_derivative_checks.second_in_host, operator, host, seed, 2)
    yield "determinism", partial(_stability_checks.in_host, operator, host, seed, level.rounds)
    yield "ownership", partial(_contract_checks.owned, operator, host, seed)
    yield "leaks", partial(_contract_checks.leaks, operator, host, seed, max(200, level.forwards))
    if stranger.overload is None or level.name == "quick":
        return
    yield "fake kernel", partial(_torch_checks.fake_kernel, operator, seed, stranger)
    yield "opcheck", partial(_torch_checks.opcheck, operator, stranger.overload, seed)
    for mode in [mode for mode in host.modes[1:] if mode in level.modes]:
        other = host.in_mode(mode)
        yield "values", partial(_operator_checks.in_mode, operator, other, level.traced, seed)
        if operator.differentiable:
            yield "gradient", partial(_derivative_checks.gradient, operator, other, seed, level.traced)


def raw(operator: Operator, stranger: Any, seed: int) -> Iterator[Row]:  # noqa: ANN401
    """What the backward function returns, before autograd sums it to the inputs' shapes and casts it."""
    raw_gradients = import_module("opforge.frameworks.torch._strangers").raw_gradients
    for types in choices(operator):
        found = ""
        for case in [case for case in cases_of(operator) if case.finite]:
            inputs = arrays(operator, case, types, seed=seed)
            with np.errstate(all="ignore"):
                result = operator.reference(*inputs, **case.attributes)
            dtype = next((t.numpy for t in types.values()), np.dtype(np.float64))
            outputs = list(result) if isinstance(result, tuple) else [result]
            grads = [np.ones(out.shape, dtype if out.dtype.kind == "f" else out.dtype) for out in outputs]
            try:
                values, leaves = raw_gradients(stranger, inputs, grads, case.attributes)
            except Exception as problem:  # a stranger's code raises what it likes
                found = f"case {case.name}: backward raises {type(problem).__name__}: {problem}"
                break
            found = values if isinstance(values, str) else _unfit(operator, values, leaves)
            if found:
                found = f"case {case.name}: {found}"
                break
        yield Row("raw gradient", "", "torch", label(types), not found, found)


def _unfit(operator: Operator, values: list[Any], leaves: list[Any]) -> str:
    names = [parameter.name for parameter in parameters(operator, leaves)]
    for name, value, leaf in zip(names, values, leaves, strict=True):
        if value is None or leaf is None:
            continue
        if not leaf.requires_grad:
            return f"backward gives a gradient for {name}, which is of integers; return None"
        if value.shape != leaf.shape:
            return (
                f"backward gives a gradient of shape {list(value.shape)} for {name} of shape {list(leaf.shape)}; "
                "autograd sums it silently where it can, so a wrong one passes: sum over the broadcast dimensions"
            )
        if value.dtype != leaf.dtype:
            return f"backward gives {value.dtype} for {name} of {leaf.dtype}; return each in its input's dtype"
    return ""
