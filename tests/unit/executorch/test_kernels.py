"""Kernels in ExecuTorch: attributes and parameters of every kind, shapes, strides, threads."""

import numpy as np
import pytest
import torch

import opforge as of
import opforge.executorch
from opforge.errors import ArgumentError, DtypeError, UnsupportedError

pytestmark = pytest.mark.compiler


def run(session, *tensors):
    return session.execute(list(tensors))


def test_dtypes(hand, lowered):
    for dtype in (torch.float32, torch.float64):
        a, b = torch.randn(4, 3, dtype=dtype), torch.randn(3, dtype=dtype)
        (y,) = run(lowered(hand.mul_rows, a, b), a, b)
        assert y.dtype == dtype and torch.equal(y, a * b)
    values = torch.arange(5.0, dtype=torch.float64)
    for dtype in (torch.int32, torch.int64):
        indices = torch.tensor([4, 0, 4], dtype=dtype)
        (y,) = run(lowered(hand.take, values, indices), values, indices)
        assert y.tolist() == [4, 0, 4]


def test_an_optional_input_is_there_or_not(hand, lowered):
    x, bias = torch.randn(5, 4), torch.randn(4)
    assert torch.equal(run(lowered(hand.add_bias, x, bias), x, bias)[0], x + bias)
    assert torch.equal(run(lowered(lambda x: hand.add_bias(x), x), x)[0], x)
    assert torch.equal(run(lowered(lambda x: hand.add_bias(x, None), x), x)[0], x)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_variadic_inputs_and_several_outputs(hand, lowered, count):
    tensors = [torch.randn(3, 2) * k for k in range(count)]
    total, largest = run(lowered(lambda *xs: hand.total(list(xs)), *tensors), *tensors)
    torch.testing.assert_close(total, torch.stack(tensors).sum(0))
    assert torch.equal(largest, torch.stack(tensors).amax(0))


def test_variadic_outputs(hand, lowered):
    g, a, b = (torch.randn(3) for _ in range(3))
    for got in run(lowered(lambda g, a, b: hand.spread(g, [a, b]), g, a, b), g, a, b):
        assert torch.equal(got, g)


def test_the_same_tensor_twice_and_results_that_are_used_twice(hand, lowered):
    x = torch.randn(3)
    torch.testing.assert_close(run(lowered(lambda x: hand.plus([x, x, x]), x), x)[0], 3 * x)
    session = lowered(lambda x: (hand.gelu(x) + x, hand.gelu(hand.gelu(x))), x)
    first, second = run(session, x)
    torch.testing.assert_close(first, torch.nn.functional.gelu(x) + x)
    torch.testing.assert_close(second, torch.nn.functional.gelu(torch.nn.functional.gelu(x)))


def test_attributes_of_every_kind_and_their_defaults(hand, lowered):
    x = torch.ones(1)

    def facts(**attributes):
        return run(lowered(lambda x: hand.attributes(x, **attributes), x), x)[0].tolist()

    small = float(np.float32(0.1))
    kinds = [float(i % 8 + 1) for i in range(13, 16)]
    assert facts() == [3, small, 5, ord("5"), 1, 2, 5, 0, 0, 2, 1 + 2 * 2, 2, 1, *kinds]
    given = {"i": -(2**62), "f": 1e-3, "s": "grüße", "b": False, "li": [7, 8, 9], "lf": [0.1, 2.0]}
    expected = [-(2.0**62), float(np.float32(1e-3)), 7, ord("e"), 0, 3, 7 + 16 + 27, 2, small + 4.0, 2, 5, 3, 3]
    assert facts(**given, lb=[True, True, False])[:13] == pytest.approx(expected, rel=1e-7)
    assert facts(li=[], lf=[], s="")[2:9] == [0, 0, 1, 0, 0, 0, 0]
    with pytest.raises(UnsupportedError, match=r"(?s)Attributes, attribute ls: ExecuTorch has no lists of texts"):
        facts(ls=["a"])


def test_sizes_that_depend_on_data(hand, lowered):
    def nonzero(x):
        found = hand.nonzero(x)
        torch._check(found.shape[0] <= 4)
        return found

    session = lowered(nonzero, torch.tensor([0.0, 1.0, 0.0, 2.0]))
    assert run(session, torch.tensor([0.0, 1.0, 0.0, 2.0]))[0].tolist() == [1, 3]
    assert run(session, torch.ones(4))[0].tolist() == [0, 1, 2, 3]
    assert run(session, torch.zeros(4))[0].shape == (0,)


def test_dynamic_dimensions_up_to_their_bound(hand, lowered):
    n, m = torch.export.Dim("n", min=1, max=8), torch.export.Dim("m", min=1, max=16)
    session = lowered(hand.mul_rows, torch.ones(3, 4), torch.ones(4), dynamic=({0: n, 1: m}, {0: m}))
    assert [len({d for d in i.shape if isinstance(d, str)}) for i in session.inputs] == [2, 1]
    for rows, columns in ((3, 4), (8, 16), (1, 1), (5, 9)):
        a, b = torch.randn(rows, columns), torch.randn(columns)
        assert torch.equal(run(session, a, b)[0], a * b)
    with pytest.raises(ArgumentError, match=r"ExecuTorch refused these inputs"):
        run(session, torch.ones(9, 16), torch.ones(16))


def test_zero_size_and_zero_rank(hand, lowered):
    assert run(lowered(hand.gelu, torch.zeros(0, 3)), torch.zeros(0, 3))[0].shape == (0, 3)
    assert run(lowered(hand.gelu, torch.tensor(1.0)), torch.tensor(1.0))[0].shape == ()
    n = torch.export.Dim("n", min=0, max=8)
    session = lowered(hand.gelu, torch.zeros(3, 3), dynamic=({0: n},))
    assert run(session, torch.zeros(0, 3))[0].shape == (0, 3)


def test_channels_last_for_kernels_with_and_without_strides(hand, lowered):
    x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    (y,) = run(lowered(hand.gelu, x), x)  # takes dense tensors only
    torch.testing.assert_close(y, torch.nn.functional.gelu(x))
    from opforge.ops import custom_gelu

    (y,) = run(lowered(custom_gelu, x), x)  # takes strides
    torch.testing.assert_close(y, custom_gelu(x))


@pytest.mark.parametrize("grain", [7, 5000])
def test_chunks_do_not_depend_on_the_number_of_threads(hand, lowered, grain):
    x = torch.zeros(1001)
    expected = torch.arange(1001) // grain * grain
    path = lowered(lambda x: hand.chunks(x, grain=grain), x).path
    for threads in (1, 2, None):
        assert torch.equal(run(of.executorch.session(path, threads=threads), x)[0], expected.float())


def test_errors_of_a_running_kernel_carry_its_words(hand, lowered):
    values, indices = torch.ones(3), torch.tensor([0, 2])
    session = lowered(hand.take, values, indices)
    with pytest.raises(ArgumentError, match=r"test.hand::Take: indices\[1\] = 9 is out of range \[0, 3\)"):
        run(session, values, torch.tensor([0, 9]))
    assert run(session, values, indices)[0].tolist() == [1, 1], "the next call is a new one"
    with pytest.raises(DtypeError, match=r"(?s)input 'tensors_0': an input has the wrong dtype.*float32.*float64"):
        session.run({"tensors_0": np.ones(3), "tensors_1": np.array([0, 2])})


def test_a_model_that_returns_a_number_too(tmp_path):
    gelu = of.load("opforge.ops:CustomGELU")[0]

    class Both(torch.nn.Module):
        def forward(self, x):
            return gelu(x), 3, x + 1

    of.executorch.lower(Both(), (torch.ones(3),), tmp_path / "net.pte")
    session = of.executorch.session(tmp_path / "net.pte")
    made = session.run({session.inputs[0].name: np.zeros(3, np.float32)})
    assert [value.tolist() for value in made.values()] == [[0, 0, 0], 3, [1, 1, 1]]


def test_addresses_are_what_a_kernel_asks_for(hand, lowered):
    x = torch.arange(1001.0)
    session = lowered(hand.paged, x)
    torch.testing.assert_close(run(session, x)[0], 2 * x)
