"""Every operator of the library in PyTorch, driven by its cases: values, gradients, second derivatives, layouts."""

import numpy as np
import pytest
import torch

import opforge as of
from opforge.frameworks.torch._dtypes import to_torch
from opforge.verify.cases import arrays, cases_of, tolerance

OPERATORS = {operator.name: operator for operator in of.load("opforge.ops")}
ROWS = [
    (operator, case, dtype)
    for operator in OPERATORS.values()
    for case in cases_of(operator)
    for dtype in operator.types["T"]
]


def name(value):
    return str(getattr(value, "name", value)).replace(" ", "-")


def types_of(operator, dtype, index=of.i64):
    return {variable: dtype if variable == "T" else index for variable in operator.types}


def tensors_of(operator, case, types):
    made = []
    for array in arrays(operator, case, types):
        if array is None:
            made.append(None)
        elif array.dtype.name == "bfloat16":
            made.append(torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16))
        else:
            made.append(torch.from_numpy(np.array(array)))
    return made


def reference(operator, tensors, attributes):
    wide = [None if t is None else t.double().numpy() if t.is_floating_point() else t.numpy() for t in tensors]
    result = operator.reference(*wide, **attributes)
    return result if isinstance(result, tuple) else (result,)


def exact(expected, dtype):
    """The float64 value; an infinity where it lies beyond the type."""
    wide = torch.from_numpy(np.array(expected, dtype=np.float64))
    rounded = wide.to(to_torch(dtype)).double()
    return torch.where(rounded.isinf(), rounded, wide)


def assert_close(operator, dtype, got, expected):
    limits = tolerance(operator, dtype)
    wanted = exact(expected, dtype)
    torch.testing.assert_close(got.double(), wanted, rtol=limits.rtol, atol=limits.atol, equal_nan=True)


@pytest.mark.parametrize(("operator", "case", "dtype"), ROWS, ids=name)
def test_values(operator, case, dtype):
    tensors = tensors_of(operator, case, types_of(operator, dtype))
    expected = reference(operator, tensors, case.attributes)
    for arrange in (
        lambda t: t,
        lambda t: torch.stack([t, t], -1).select(-1, 0),
        lambda t: t.mT.contiguous().mT if t.dim() > 1 else t,
    ):
        arranged = [None if t is None else arrange(t) for t in tensors]
        results = operator(*arranged, **case.attributes)
        for got, wanted in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
            assert got.dtype == to_torch(dtype)
            assert got.is_contiguous()
            assert_close(operator, dtype, got, wanted)


@pytest.mark.parametrize("operator", [o for o in OPERATORS.values() if "I" in o.types], ids=name)
def test_both_index_dtypes_agree(operator):
    for case in cases_of(operator):
        wide = operator(*tensors_of(operator, case, types_of(operator, of.f64, of.i64)))
        narrow = operator(*tensors_of(operator, case, types_of(operator, of.f64, of.i32)))
        assert torch.equal(wide, narrow), case.name


@pytest.mark.parametrize("operator", [o for o in OPERATORS.values() if o.differentiable], ids=name)
def test_gradients_of_first_and_second_order(operator):
    """Against finite differences in float64; small inputs only, whose Jacobians stay small."""
    checked = 0
    for case in cases_of(operator):
        tensors = tensors_of(operator, case, types_of(operator, of.f64))
        if not case.finite or any(t is not None and t.numel() == 0 for t in tensors):
            continue
        # Inputs of a formula still broadcast when all are cut alike; those of a kernel operator may not be cut.
        small = tensors
        if operator.formula is not None:
            small = [t[tuple(slice(0, 4) for _ in t.shape)].clone() for t in tensors]
        elif sum(t.numel() for t in tensors if t is not None) > 120:
            continue
        for tensor in small:
            if tensor is not None and tensor.is_floating_point():
                tensor.requires_grad_()
        call = lambda *inputs, case=case: operator(*inputs, **case.attributes)  # noqa: E731
        assert torch.autograd.gradcheck(call, small), case.name
        assert torch.autograd.gradgradcheck(call, small), case.name
        checked += 1
    assert checked > 0


@pytest.mark.parametrize("operator", [o for o in OPERATORS.values() if o.formula is not None], ids=name)
def test_gradients_of_every_dtype_against_the_reference(operator):
    """The generated gradient operator, reached through autograd with a stride-0 gradient, against its own float64."""
    (derived,) = operator.derived
    for case in cases_of(operator):
        for dtype in operator.types["T"]:
            tensors = [t.requires_grad_() for t in tensors_of(operator, case, types_of(operator, dtype))]
            result = operator(*tensors, **case.attributes)
            got = torch.autograd.grad(result.sum(), tensors)
            with torch.no_grad():
                ones = torch.ones_like(result)
                expected = reference(derived, [ones, *(t.detach() for t in tensors)], case.attributes)
            for g, t, wanted in zip(got, tensors, expected, strict=True):
                assert (g.shape, g.dtype) == (t.shape, t.dtype)
                limits = tolerance(derived, dtype)
                scale = max(1.0, result.numel() / max(1, t.numel())) ** 0.5  # gradients of broadcast inputs are sums
                rtol, atol = limits.rtol * scale, max(limits.atol, 1e-6 if dtype.bits < 64 else 0.0) * scale
                text = f"{case.name} {dtype}"
                torch.testing.assert_close(
                    g.double(),
                    exact(wanted, dtype),
                    rtol=rtol,
                    atol=atol,
                    equal_nan=True,
                    msg=lambda m, t=text: f"{t}: {m}",
                )
