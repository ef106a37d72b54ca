"""Checks that only PyTorch needs: fake kernels promise what real ones do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from opforge.errors import OpforgeError
from opforge.schema import DType, Operator
from opforge.verify._rows import Array, Row, choices, label, widest
from opforge.verify.cases import Case, arrays, cases_of

__all__ = ["fake_kernel", "opcheck", "opcheck_own"]


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


def _leaf(tensor: Any, differentiable: bool) -> Any:  # noqa: ANN401 - a tensor
    return tensor.requires_grad_() if differentiable and tensor.is_floating_point() else tensor
