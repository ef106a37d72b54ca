"""Faults of functions that others made for PyTorch: each kind is planted, and reported in words that help."""

import numpy as np
import pytest

from opforge.ops import custom_gelu
from opforge.verify import check_function
from opforge.verify._torch_checks import autocast

torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = [pytest.mark.torch, pytest.mark.planted]

X = np.linspace(-1.5, 1.5, 12).reshape(3, 4) + 0.01
W = np.linspace(0.5, 2.0, 4)


def details(report, check):
    return [row.detail for row in report.failures if row.check == check]


def kinds(report):
    return {row.check for row in report.failures}


class Square(torch.autograd.Function):
    """x squared, right in every respect."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


def square(x):
    return x * x


def test_a_right_function_passes():
    report = check_function(Square, square, [(X,), (X[:0],)], dtypes=["f16", "f32", "f64"])
    assert report.passed, report.failures
    checked = {row.check for row in report.rows}
    assert {
        "values",
        "layouts",
        "boundary",
        "raw gradient",
        "gradient",
        "gradient layouts",
        "second derivative",
    } <= checked
    assert {"determinism", "ownership", "leaks"} <= checked


def test_gradient_read_as_dense():
    class Blind(Square):
        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            dense = torch.zeros(x.numel(), dtype=g.dtype)
            memory = g.as_strided((g.untyped_storage().nbytes() // g.itemsize,), (1,), 0)
            dense[: min(len(memory), len(dense))] = memory[: len(dense)]  # what a kernel does with g.data_ptr() alone
            return 2 * x * dense.reshape(x.shape)

    report = check_function(Blind, square, [(X,)])
    texts = details(report, "gradient layouts")
    assert any("of stride 0" in row.case for row in report.failures)
    assert texts and all("the backward pass does not honour strides" in text for text in texts), texts


def test_half_precision_is_refused():
    class Floats(Square):
        @staticmethod
        def forward(ctx, x):
            if x.dtype == torch.float16:
                raise RuntimeError("expected scalar type Float but found Half")
            return Square.forward(ctx, x)

    report = check_function(Floats, square, [(X,)], dtypes=["f16", "f32"])
    assert {row.dtype for row in report.failures if row.check == "values"} == {"f16"}
    assert "expected scalar type Float but found Half" in details(report, "values")[0]


def test_gradient_of_another_dtype():
    class Wide(Square):
        @staticmethod
        def backward(ctx, g):
            return Square.backward(ctx, g).double()

    report = check_function(Wide, square, [(X,)], dtypes=["f32"])
    (text,) = details(report, "raw gradient")
    assert "backward gives torch.float64 for x0 of torch.float32; return each in its input's dtype" in text


class Scale(torch.autograd.Function):
    """x w, where w is broadcast; its gradient is not summed back."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, g * x


def test_broadcast_gradient_is_not_reduced():
    # Autograd sums [3, 4] to [4] without a word, so the values are right by luck.
    report = check_function(Scale, lambda x, w: x * w, [(X, W)])
    text = details(report, "raw gradient")[0]
    assert "a gradient of shape [3, 4] for x1 of shape [4]" in text
    assert "autograd sums it silently where it can, so a wrong one passes: sum over the broadcast dimensions" in text
    assert "gradient" not in kinds(report)


def test_wrong_number_of_gradients():
    class Few(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, alpha):
            ctx.save_for_backward(w)
            return x * w * alpha

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0], None

    cases = [{"inputs": [X, W], "attributes": {"alpha": 1.0}}]
    report = check_function(Few, lambda x, w, alpha: x * w * alpha, cases)
    text = details(report, "raw gradient")[0]
    assert "backward returns 2 gradients, the forward function takes 3 arguments" in text
    assert "return one for each, None for those without" in text


def test_no_autograd_rule():
    def detached(x):
        return torch.from_numpy(x.detach().numpy() ** 2)

    report = check_function(detached, square, [(X,)])
    text = details(report, "raw gradient")[0]
    assert "no output is connected to the inputs: backward stops silently, and every gradient is None" in text
    assert "the gradient is missing or zero" in details(report, "gradient")[0]
    assert check_function(detached, square, [(X,)], differentiable=False).passed, "declared, it is no fault"


def test_second_derivative_is_silently_wrong():
    class Fourfold(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.t = 2 * x  # no graph leads from here to x
            return ctx.t**2

        @staticmethod
        def backward(ctx, g):
            return 4 * ctx.t * g

    report = check_function(Fourfold, lambda x: 4 * x * x, [(X,)])
    assert kinds(report) == {"second derivative"}
    text = details(report, "second derivative")[0]
    assert "the second derivative by x0 along a random direction is 0, finite differences" in text
    assert "the gradient is missing or zero" in text


def test_declared_once_differentiable_is_no_fault():
    class Once(Square):
        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    report = check_function(Once, square, [(X,)])
    assert report.passed, report.failures
    assert any(row.detail == "declared once differentiable" for row in report.rows)


_kept = []


def test_leak():
    class Keeps(Square):
        @staticmethod
        def forward(ctx, x):
            result = Square.forward(ctx, x)
            _kept.append(result)
            return result

    report = check_function(Keeps, square, [(np.ones((100, 100)),)])
    _kept.clear()
    (text,) = details(report, "leaks")
    assert "calls without a backward pass leave" in text
    assert "what a call saves is never freed; save tensors with save_for_backward, not on the context" in text


def test_chance_is_told_apart_from_error():
    def noisy(x):
        return x * x * (1 + 0.01 * torch.rand_like(x))

    report = check_function(noisy, square, [(X,)], differentiable=False)
    assert "it is not deterministic: of two equal calls" in details(report, "values")[0]
    assert "calls share memory, or the kernel keeps state" in details(report, "determinism")[0]
    wrong = check_function(lambda x: x * x * 1.01, square, [(X,)])
    assert "it is not deterministic" not in details(wrong, "values")[0]
    assert "determinism" not in kinds(wrong)


def test_nan_is_dropped():
    report = check_function(lambda x: torch.nan_to_num(x) * 2, lambda x: x * 2, [(X,)], differentiable=False)
    assert kinds(report) == {"boundary"}
    assert any(
        "write them so that NaN arrives, or declare nan='ignore'" in text for text in details(report, "boundary")
    )


def test_output_is_the_input():
    report = check_function(lambda x: x.view_as(x), lambda x: x, [(X,)], differentiable=False)
    assert "output 0 shares memory with input 0" in details(report, "ownership")[0]


def test_input_is_written():
    def inplace(x):
        return x.mul_(2).clone()

    report = check_function(inplace, lambda x: x * 2, [(X,)], differentiable=False)
    assert "the call changed its input x0" in details(report, "ownership")[0]


def _custom(name, fake, forward=lambda x: x.contiguous() * 2, gradient=True):
    op = torch.library.custom_op(f"planted::{name}", forward, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(fake)
    if gradient:
        op.register_autograd(lambda ctx, g: g * 2)
    return op


def double(x):
    return x * 2


def test_a_right_registered_operator_passes():
    report = check_function(_custom("right", lambda x: torch.empty(x.shape, dtype=x.dtype)), double, [(X,)])
    assert report.passed, report.failures
    assert {"fake kernel", "opcheck"} <= {row.check for row in report.rows}
    assert {row.host for row in report.rows if row.check == "values"} == {"torch", "torch traced"}


def test_fake_kernel_promises_another_shape():
    op = _custom("padded", lambda x: torch.empty((x.shape[0], x.shape[1] + 4), dtype=x.dtype))
    report = check_function(op, double, [(X,)])
    assert "real (shape, dtype, strides, device) ([3, 4]" in details(report, "fake kernel")[0]
    assert "fake ([3, 8]" in details(report, "fake kernel")[0]


def test_fake_kernel_copies_strides():
    report = check_function(_custom("strides", torch.empty_like), double, [(X,)])
    text = details(report, "fake kernel")[0]
    assert "transposed" in text and "[4, 1]" in text and "[1, 3]" in text


def test_operator_without_a_gradient():
    op = _custom("silent", lambda x: torch.empty(x.shape, dtype=x.dtype), gradient=False)
    report = check_function(op, double, [(X,)])
    assert any("no autograd formula was registered" in text for text in details(report, "raw gradient"))


def test_autocast_does_not_follow_the_declared_rule(monkeypatch):
    assert next(autocast(custom_gelu, 0)).passed
    monkeypatch.setattr(custom_gelu, "autocast", "f32")  # PyTorch was told "promote"
    (row,) = autocast(custom_gelu, 0)
    assert "outputs are torch.bfloat16, the rule 'f32' gives torch.float32" in row.detail
