"""Gradients: first and second order, pruning, undefined and strided gradients, refusals, memory, functorch."""

import gc
import weakref

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import gelu

F64 = torch.float64


def leaf(*shape):
    return torch.randn(*shape, dtype=F64, requires_grad=True)


def test_gradcheck_and_gradgradcheck(hand):
    assert gradcheck(hand.gelu, (leaf(3, 4),))
    assert gradgradcheck(hand.gelu, (leaf(3, 4),))
    assert gradcheck(hand.mul_rows, (leaf(3, 4), leaf(4)))
    assert gradgradcheck(hand.mul_rows, (leaf(3, 4), leaf(4)))
    assert gradcheck(hand.add_bias, (leaf(3, 4), leaf(4)))


def test_second_derivative_against_the_closed_form(hand):
    x = torch.linspace(-3, 3, 31, dtype=F64, requires_grad=True)
    (first,) = torch.autograd.grad(hand.gelu(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    density = torch.exp(-0.5 * x * x) / (2 * torch.pi) ** 0.5
    torch.testing.assert_close(second, ((2 - x * x) * density).detach(), rtol=1e-12, atol=1e-14)


def test_strided_gradients(hand):
    """`sum` gives an expanded gradient with stride 0; transposing gives a strided one."""
    x = torch.randn(3, 4, requires_grad=True)
    (expanded,) = torch.autograd.grad(hand.gelu(x).sum(), x)
    (expected,) = torch.autograd.grad(gelu(x).sum(), x)
    torch.testing.assert_close(expanded, expected)
    weights = torch.randn(4, 3)
    (transposed,) = torch.autograd.grad((hand.gelu(x).t() * weights).sum(), x)
    (expected,) = torch.autograd.grad((gelu(x).t() * weights).sum(), x)
    torch.testing.assert_close(transposed, expected)


def test_inputs_that_are_views(hand):
    base = torch.randn(8, 6, requires_grad=True)
    for view in (lambda t: t.t(), lambda t: t[1::2, 2:], lambda t: t[:1].expand(5, 6)):
        (got,) = torch.autograd.grad((hand.gelu(view(base)) ** 2).sum(), base)
        (expected,) = torch.autograd.grad((gelu(view(base)) ** 2).sum(), base)
        torch.testing.assert_close(got, expected)


def test_only_what_is_asked_for(hand):
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4)
    hand.mul_rows(a, b).sum().backward()
    torch.testing.assert_close(a.grad, b.expand(3, 4).contiguous())
    b.requires_grad_()
    (only_b,) = torch.autograd.grad(hand.mul_rows(a, b).sum(), b)
    torch.testing.assert_close(only_b, a.sum(0).detach())
    detached = a.detach()
    (only_b,) = torch.autograd.grad(hand.mul_rows(detached, b).sum(), b)
    torch.testing.assert_close(only_b, detached.sum(0))


def test_optional_input_absent_and_present(hand):
    x = torch.randn(3, 4, requires_grad=True)
    hand.add_bias(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 4))
    bias = torch.randn(4, requires_grad=True)
    hand.add_bias(x.detach(), bias).sum().backward()
    assert torch.equal(bias.grad, torch.full((4,), 3.0))


def test_variadic_input_and_variadic_gradient(hand):
    tensors = [leaf(3) for _ in range(3)]
    assert gradcheck(lambda *xs: hand.plus(list(xs)), tensors)
    assert gradgradcheck(lambda *xs: hand.plus([x * x for x in xs]), tensors)
    only = torch.autograd.grad(hand.plus([tensors[0].detach(), tensors[1]]).sum(), tensors[1])
    assert torch.equal(only[0], torch.ones(3, dtype=F64))
    twice = torch.autograd.grad(hand.plus([tensors[0], tensors[0]]).sum(), tensors[0])
    assert torch.equal(twice[0], torch.full((3,), 2.0, dtype=F64))


def test_optional_input_and_optional_gradient(hand):
    x, offset = leaf(4), leaf(2)
    assert gradcheck(hand.add_offset, (x, offset))
    assert gradcheck(hand.add_offset, (x,))
    grad_x, absent = hand.add_offset_grad(torch.ones(4, dtype=F64))
    assert absent is None
    assert grad_x.shape == (4,)
    assert hand.add_offset_grad(torch.ones(4, dtype=F64), offset)[1].shape == (2,)


def test_a_gradient_of_the_wrong_shape_is_not_hidden(hand):
    """Autograd itself would sum [3, 4] to [4] without a word."""
    a, b = leaf(3, 4), leaf(4)
    y = hand.wrong_gradient(a, b)
    with pytest.raises(
        (RuntimeError, ValueError), match=r"(?s)WrongGradient, gradient of b: .*wrong shape.*correct gradient="
    ):
        y.sum().backward()
    (only_a,) = torch.autograd.grad(hand.wrong_gradient(a, b.detach()).sum(), a)
    assert only_a.shape == a.shape


def test_undefined_gradient_counts_as_zeros(hand):
    dy, a, b = torch.ones(3, 4, dtype=F64, requires_grad=True), leaf(3, 4), leaf(4)
    da, _ = hand.mul_rows_grad(dy, a, b)
    got = torch.autograd.grad(da.sum(), (dy, b))
    torch.testing.assert_close(got[0], b.expand(3, 4).detach().contiguous())
    torch.testing.assert_close(got[1], torch.full((4,), 3.0, dtype=F64))


def test_backward_through_a_non_differentiable_operator_raises(hand):
    for call in (
        lambda x: hand.total([x, x])[0],
        lambda x: hand.sum_rows(x),
        lambda x: hand.take(x[0], torch.tensor([0, 1])),
    ):
        x = torch.randn(3, 4, requires_grad=True)
        y = call(x * 1.0)
        assert y.requires_grad
        with pytest.raises(
            (RuntimeError, ValueError), match=r"(?s)test.hand::\w+: the operator is not differentiable.*detach"
        ):
            y.sum().backward()


def test_third_derivative_raises_instead_of_being_wrong(hand):
    x = leaf(4)
    (first,) = torch.autograd.grad(hand.gelu(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    with pytest.raises((RuntimeError, ValueError), match="GeluGradGrad: the operator is not differentiable"):
        torch.autograd.grad(second.sum(), x)


def test_integer_outputs_carry_no_gradient(hand):
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    assert not hand.nonzero(x).requires_grad


def test_in_place_change_of_a_saved_tensor_is_noticed(hand):
    x = torch.randn(4, requires_grad=True)
    y = x * 1.0
    z = hand.gelu(y)
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_what_the_gradient_does_not_read_is_not_saved(hand):
    """AddBias's gradient reads neither input: changing one is harmless, and it dies with its last user."""
    x = torch.randn(3, 4, requires_grad=True)
    y = x * 1.0
    bias = torch.randn(4)
    z = hand.add_bias(y, bias)
    y.add_(1.0)
    died = weakref.ref(bias)
    del bias
    gc.collect()
    assert died() is None
    z.sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 4))


def test_forward_only_leaks_nothing(hand):
    x = torch.randn(100, 100, requires_grad=True)
    outputs = []
    for _ in range(200):
        y = hand.gelu(x)
        outputs.append(weakref.ref(y))
        del y
    assert sum(o() is not None for o in outputs) == 0
    hand.mul_rows(x, torch.ones(100)).sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        z = hand.gelu(x).sum()
        z.backward()
        z.backward()


def test_retain_graph_and_checkpoint(hand):
    x = torch.randn(5, requires_grad=True)
    y = hand.gelu(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad, 2 * torch.autograd.grad(gelu(x).sum(), x)[0])
    for reentrant in (False, True):
        x.grad = None
        torch.utils.checkpoint.checkpoint(hand.gelu, x, use_reentrant=reentrant).sum().backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(gelu(x).sum(), x)[0])


def test_hooks_on_saved_tensors_are_called(hand):
    seen = []
    x = torch.randn(4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: seen.append("pack") or t, lambda t: seen.append("unpack") or t
    ):
        y = hand.gelu(x)
    y.sum().backward()
    assert seen == ["pack", "unpack"]


def test_the_node_is_named_after_the_operator(hand):
    assert hand.gelu(torch.ones(1, requires_grad=True)).grad_fn.name() == "GeluBackward"


def test_functorch(hand):
    x = torch.randn(4, dtype=F64)

    def both(transform):
        torch.testing.assert_close(transform(hand.gelu), transform(gelu))

    both(lambda f: torch.func.grad(lambda a: f(a).sum())(x))
    both(lambda f: torch.func.grad(lambda z: torch.func.grad(lambda a: f(a).sum())(z).pow(2).sum())(x))
    both(lambda f: torch.func.jacrev(f)(x))
    both(lambda f: torch.func.jacrev(torch.func.grad(lambda a: f(a).sum()))(x))
    both(lambda f: torch.func.jacrev(torch.func.jacrev(lambda a: f(a).sum()))(x))
    both(lambda f: torch.func.vjp(f, x)[1](torch.ones(4, dtype=F64))[0])
    both(lambda f: torch.vmap(torch.func.grad(lambda a: f(a).sum()))(x.reshape(2, 2)))
    both(lambda f: torch.func.grad(lambda a: torch.vmap(f)(a).pow(2).sum())(x.reshape(2, 2)))


def test_vmap_of_kernel_operators(hand):
    a, b = torch.randn(5, 3, 4), torch.randn(5, 4)
    torch.testing.assert_close(torch.vmap(hand.mul_rows)(a, b), a * b[:, None])
    torch.testing.assert_close(torch.vmap(hand.mul_rows, in_dims=(2, None))(a.movedim(0, 2), b[0]), a * b[0])
    torch.testing.assert_close(torch.vmap(hand.add_bias)(a), a)
    total, largest = torch.vmap(lambda x, y: hand.total([x, y]))(a, a + 1)
    torch.testing.assert_close(total, 2 * a + 1)
    torch.testing.assert_close(largest, a + 1)
    assert torch.vmap(hand.mul_rows, in_dims=(0, None))(torch.empty(0, 3, 4), b[0]).shape == (0, 3, 4)


def test_forward_mode_raises_and_is_never_silently_zero(hand):
    x = torch.randn(3)
    with pytest.raises(
        (RuntimeError, ValueError), match=r"Gelu: forward-mode differentiation \(jvp\) is not implemented"
    ):
        torch.func.jvp(hand.gelu, (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises((RuntimeError, ValueError), match="forward-mode differentiation"):
            hand.gelu(dual)
        torch.testing.assert_close(hand.gelu(x), gelu(x))
