"""Checks that only PyTorch needs: fake kernels promise what real ones do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from opforge.errors import OpforgeError
from opforge.schema import DType, Operator, bf16, f32
from opforge.verify._announced import announce
from opforge.verify._measures import explain, measure
from opforge.verify._rows import Array, Row, choices, label, reference, widest
from opforge.verify.cases import Case, arrays, cases_of, tolerance

__all__ = ["autocast", "fake_kernel", "opcheck", "opcheck_own"]


def fake_kernel(operator: Operator, seed: int, call: Callable[..., Any] | None = None) -> Iterator[Row]:
    """Number, shape, dtype, strides and device of the fake kernel's outputs against the real ones'.

    ``call`` is what is called in the operator's place. The first case is tried with transposed inputs too: a fake
    kernel that copies its input's strides is right for dense ones only.
    """
    function = call or operator
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from opforge.frameworks.torch._arrays import to_tensor

    def described(result: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - one tensor or several
        tensors = result if isinstance(result, tuple | list) else [result]
        return [(list(t.shape), str(t.dtype), list(t.stride()), str(t.device)) for t in tensors]

    for types in choices(operator):
        found = ""
        for case, values in _points(operator, types, seed):
            tensors = [None if v is None else to_tensor(v) for v in values]
            announce("fake kernel", case.name, "torch", label(types))
            try:
                real = described(function(*tensors, **case.attributes))
                with FakeTensorMode(shape_env=ShapeEnv()) as mode:
                    fakes = [None if t is None else mode.from_tensor(t, static_shapes=True) for t in tensors]
                    fake = described(function(*fakes, **case.attributes))
            except OpforgeError as problem:
                found = f"case {case.name}: {problem}"
                break
            except Exception as problem:
                found = f"case {case.name}: {type(problem).__name__}: {problem}"
                break
            # Data-dependent sizes are symbols in the fake outputs; only their number of dimensions is known.
            for a, b in zip(real, fake, strict=False):
                symbolic = any(not isinstance(size, int) for size in b[0])
                if len(a[0]) != len(b[0]) or a[1] != b[1] or (not symbolic and a != b):
                    found = f"case {case.name}: real (shape, dtype, strides, device) {a}, fake {b}"
            if len(real) != len(fake):
                found = f"case {case.name}: {len(real)} real outputs, {len(fake)} fake ones"
            if found:
                break
        yield Row("fake kernel", "shape, dtype, strides", "torch", label(types), not found, found)


def _points(operator: Operator, types: dict[str, DType], seed: int) -> Iterator[tuple[Case, list[Array | None]]]:
    for number, case in enumerate(cases_of(operator)):
        values = arrays(operator, case, types, seed=seed)
        yield case, values
        if number == 0 and any(value is not None and value.ndim >= 2 for value in values):
            turned = [v if v is None or v.ndim < 2 else np.ascontiguousarray(v.T).T for v in values]
            yield replace(case, name=f"{case.name}, transposed"), turned


def opcheck_own(operator: Operator, seed: int) -> Iterator[Row]:
    """`opcheck` of an operator of ours."""
    from opforge.frameworks.torch._calls import register

    yield from opcheck(operator, register(operator), seed)


def opcheck(operator: Operator, overload: Any, seed: int) -> Iterator[Row]:  # noqa: ANN401 - an OpOverload
    """PyTorch's own tests of a registered operator: schema, autograd registration, fake tensors, AOT dispatch."""
    import torch

    from opforge.frameworks.torch._arrays import to_tensor

    types = widest(operator)
    for case in cases_of(operator):
        values = arrays(operator, case, types, seed=seed)
        if all(value is None or value.size for value in values):
            break
    announce("opcheck", case.name, "torch", label(types))
    floats = operator.differentiable
    arranged = [
        [_leaf(to_tensor(v), floats) for v in value] if isinstance(value, tuple)
        else None if value is None else _leaf(to_tensor(value), floats)
        for value in operator.arrange(values, {})
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = torch.library.opcheck(overload, tuple(arranged), dict(case.attributes), raise_exception=False)
    for test, result in found.items():
        good = result == "SUCCESS"
        text = "" if good else f"{type(result).__name__}: {result}".strip().splitlines()
        detail = "" if good else "\n".join(line for line in text[:6] if line.strip())
        yield Row("opcheck", test, "torch", label(types), good, detail)


def autocast(operator: Operator, seed: int) -> Iterator[Row]:
    """Inputs of two dtypes inside ``torch.autocast``: the declared rule's dtype, and gradients in each input's own."""
    import torch

    from opforge.frameworks.torch._arrays import to_numpy, to_tensor

    float_types = [name for name, allowed in operator.types.items() if {f32, bf16} <= set(allowed)]
    parameters_ = [p for p in operator.signature.inputs if p.type in float_types]
    if operator.autocast == "none" or not parameters_ or len(float_types) > 1:
        return
    types = {**widest(operator), float_types[0]: f32}
    case = next((c for c in cases_of(operator) if c.finite and _full(arrays(operator, c, types, seed=seed))), None)
    if case is None:
        return
    values = arrays(operator, case, types, seed=seed)
    tensors = [None if v is None else _leaf(to_tensor(v), operator.differentiable) for v in values]
    places = [k for k, t in enumerate(tensors) if t is not None and t.is_floating_point()]
    low = tensors[places[0]].detach().to(torch.bfloat16)  # type: ignore[union-attr]
    tensors[places[0]] = _leaf(low, operator.differentiable)
    mixed = torch.float32 if len(places) > 1 else torch.bfloat16
    expected = {"promote": mixed, "f32": torch.float32, "lower": torch.bfloat16}[operator.autocast]
    found = ""
    announce("autocast", case.name, "torch", "f32 bf16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = operator(*tensors, **case.attributes)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    floats = [t for t in outputs if t.is_floating_point()]
    if any(t.dtype != expected for t in floats):
        found = f"outputs are {floats[0].dtype}, the rule {operator.autocast!r} gives {expected}"
    if not found and operator.differentiable:
        leaves: list[Any] = [tensors[k] for k in places]
        grads = torch.autograd.grad(floats, leaves, [torch.ones_like(t) for t in floats], allow_unused=True)
        wrong = [k for k, (g, t) in enumerate(zip(grads, leaves, strict=True)) if g is not None and g.dtype != t.dtype]
        found = f"the gradient of floating input {wrong[0]} is not in its input's dtype" if wrong else ""
    plain = [None if t is None else to_numpy(t) for t in tensors]
    right = reference(operator, plain, case.attributes)
    pairs = [(to_numpy(t), r) for t, r in zip(outputs, right, strict=True) if t.is_floating_point()]
    limit = tolerance(operator, bf16)
    for got, wide in [] if found else pairs:
        difference = measure(got, np.asarray(wide, np.float64), rtol=4 * limit.rtol, atol=4 * limit.atol)
        if not difference.passed:
            found = f"values are wrong: {explain(difference, np.asarray(got, np.float64), np.asarray(wide))}"
    yield Row("autocast", operator.autocast, "torch", "f32 bf16", not found, found)


def _full(values: list[Array | None]) -> bool:
    return all(value is None or value.size for value in values)


def _leaf(tensor: Any, differentiable: bool) -> Any:  # noqa: ANN401 - a tensor
    return tensor.requires_grad_() if differentiable and tensor.is_floating_point() else tensor
