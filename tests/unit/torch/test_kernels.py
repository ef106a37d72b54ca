"""Calls of kernels: inputs of every layout, attributes of every kind, several outputs, threads, errors."""

import pytest
import torch


def test_dense_and_strided_inputs(hand):
    x = torch.randn(6, 10)
    views = {
        "dense": x,
        "transposed": x.t(),
        "sliced": x[1:5:2, 3:],
        "expanded": x[:1].expand(4, 10),
        "flipped": x.flip(0)[:, ::3],
        "negated": torch._neg_view(x),
        "imaginary": torch.randn(3, 4, dtype=torch.complex64).imag,
        "conjugate imaginary": torch.randn(3, 4, dtype=torch.complex64).conj().imag,
    }
    for name, view in views.items():
        result = hand.gelu(view)
        torch.testing.assert_close(result, torch.nn.functional.gelu(view.clone()), msg=name)
        assert result.is_contiguous(), name


def test_strided_kernel_gets_strides_and_optional_input(hand):
    x = torch.randn(5, 4).t()
    bias = torch.randn(10)[::2]
    torch.testing.assert_close(hand.add_bias(x, bias), x + bias)
    torch.testing.assert_close(hand.add_bias(x), x.clone())
    torch.testing.assert_close(hand.add_bias(x, None), x.clone())
    torch.testing.assert_close(hand.add_bias(x.expand(4, 5), bias[:1].expand(5)), x + bias[0])


def test_variadic_input_and_several_outputs(hand):
    for count in (1, 2, 5):
        tensors = [torch.randn(3, 2) for _ in range(count)]
        total, largest = hand.total(tensors)
        torch.testing.assert_close(total, torch.stack(tensors).sum(0))
        torch.testing.assert_close(largest, torch.stack(tensors).amax(0))


def test_zero_size_and_zero_rank(hand):
    assert hand.gelu(torch.empty(0, 3)).shape == (0, 3)
    assert hand.gelu(torch.tensor(1.0)).shape == ()
    assert hand.mul_rows(torch.empty(0, 3), torch.ones(3)).shape == (0, 3)
    da, db = hand.mul_rows_grad(torch.empty(0, 3), torch.empty(0, 3), torch.ones(3))
    assert da.shape == (0, 3)
    assert torch.equal(db, torch.zeros(3))


def test_outputs_are_new_memory(hand):
    x = torch.randn(4)
    assert hand.wait(x, milliseconds=0).data_ptr() != x.data_ptr()


def test_index_dtypes(hand):
    values = torch.arange(5.0)
    for dtype in (torch.int32, torch.int64):
        index = torch.tensor([4, 0, 4], dtype=dtype)
        assert hand.take(values, index).tolist() == [4, 0, 4]
        assert hand.take(values.double(), index[::2]).tolist() == [4, 4]


def test_output_whose_shape_depends_on_data(hand):
    assert hand.nonzero(torch.tensor([0.0, 1.0, 0.0, 2.0])).tolist() == [1, 3]
    assert hand.nonzero(torch.zeros(3)).shape == (0,)


def test_attribute_defaults_arrive(hand):
    facts = hand.attributes(torch.ones(1)).tolist()
    kinds = [float(i % 8 + 1) for i in range(13, 16)]
    # int, float (rounded to float32), size and last byte of "12345", bool, then count and weighted sum of each list
    assert facts == [3, float(torch.tensor(0.1)), 5, ord("5"), 1, 2, 5, 0, 0, 2, 1 + 2 * 2, 2, 1, *kinds]


def test_attributes_of_every_kind_arrive(hand):
    facts = hand.attributes(
        torch.ones(1),
        i=-(2**62),
        f=1e-3,
        s="grüße",
        b=False,
        li=[],
        lf=[0.1, 2.0],
        ls=["", "日本"],
        lb=[True, True, False],
    ).tolist()
    small = float(torch.tensor(0.1))
    assert facts[:13] == [
        -(2.0**62), float(torch.tensor(1e-3)), 7, ord("e"), 0, 0, 0, 2, small + 4.0, 2, 2 * 6, 3, 3,
    ]  # fmt: skip
    assert hand.attributes(torch.ones(1), s="").tolist()[2:4] == [0, 0]
    assert hand.attributes(torch.ones(1), li=[7, 8, 9], ls=[], lb=[]).tolist()[5:13] == [
        3,
        7 + 16 + 27,
        0,
        0,
        0,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_do_not_depend_on_the_number_of_threads(hand, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.zeros(1001)
        for grain in (1, 7, 100, 5000):
            expected = (torch.arange(1001) // grain * grain).to(torch.float32)
            assert torch.equal(hand.chunks(x, grain=grain), expected)
    finally:
        torch.set_num_threads(before)


def test_errors_say_what_where_expected_and_got(hand):
    with pytest.raises((RuntimeError, ValueError), match=r"test.hand::Take: indices\[1\] = 9 is out of range \[0, 3\)"):
        hand.take(torch.ones(3), torch.tensor([0, 9]))
    with pytest.raises(
        (RuntimeError, ValueError), match=r"(?s)MulRows, argument b: dimension 0 is wrong.*n = 4.*got: 3"
    ):
        hand.mul_rows(torch.ones(2, 4), torch.ones(3))
    with pytest.raises((RuntimeError, ValueError), match=r"(?s)MulRows, argument a: wrong rank.*rank 2.*rank 1"):
        hand.mul_rows(torch.ones(4), torch.ones(4))
    with pytest.raises((RuntimeError, TypeError), match=r"(?s)Gelu, argument x: wrong dtype.*T: f32, f64.*i64"):
        hand.gelu(torch.ones(2, dtype=torch.int64))
    with pytest.raises(
        (RuntimeError, TypeError), match=r"(?s)MulRows, argument b: wrong dtype.*f32, as T in argument a.*f64"
    ):
        hand.mul_rows(torch.ones(2, 4), torch.ones(4, dtype=torch.float64))
    with pytest.raises((RuntimeError, TypeError), match=r"(?s)Take, argument indices: wrong dtype.*I: i32, i64"):
        hand.take(torch.ones(3), torch.ones(3))
    with pytest.raises((RuntimeError, TypeError), match=r"(?s)Gelu.*dtype.*T: f32, f64"):
        hand.gelu(torch.ones(2, dtype=torch.complex64))


def test_errors_leave_nothing_behind(hand):
    """A failing call frees its arguments (the stable ABI hands them over)."""
    import gc

    def live() -> int:
        gc.collect()
        return sum(type(o) is torch.Tensor for o in gc.get_objects())

    x, index = torch.ones(3), torch.tensor([9])
    before = live()
    references = x.untyped_storage()._use_count() if hasattr(x.untyped_storage(), "_use_count") else None
    for _ in range(50):
        with pytest.raises((RuntimeError, ValueError)):
            hand.take(x, index)
    assert live() <= before + 2
    if references is not None:
        assert x.untyped_storage()._use_count() == references


def test_addresses_are_what_a_kernel_asks_for(hand):
    x = torch.randn(1001)
    torch.testing.assert_close(hand.paged(x[1:]), 2 * x[1:])
    torch.testing.assert_close(hand.paged(x[:1000].view(10, 100).T), 2 * x[:1000].view(10, 100).T)
