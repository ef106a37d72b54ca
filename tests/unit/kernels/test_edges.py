"""Shapes and windows at the edge of what kernels take: the results are right, and nothing outside is read."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.errors import ArgumentError
from tests.unit.kernels.graphs import Net, c16, formula


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("algorithm", ["first", "direct", "depthwise", "winograd"])
def test_windows_over_nothing_but_padding(algorithm, size):
    channels = 3 if algorithm == "first" else 16
    rng, net = np.random.default_rng(3), Net()
    bias = rng.standard_normal(16).astype(np.float32)
    packing = {"direct": "conv16"}.get(algorithm, f"{algorithm}16")
    w = rng.standard_normal((16, 1 if algorithm == "depthwise" else channels, 3, 3)).astype(np.float32)
    x = net.feed(np.zeros((2, channels, *size), np.float32))
    if algorithm != "first":
        x = net.blocked(x, 6, 6, 6, 6)
    inputs = [x, net.constant(w, packing), net.constant(bias)]
    sizes = {"kernel_shape": [3, 3], "pads": [3] * 4, "channels_in": channels, "channels_out": 16}
    y = net.plain(net.node("Conv", inputs, layout=c16(), algorithm=algorithm, **sizes))
    want = np.broadcast_to(bias[:, None, None], (2, 16, size[0] + 4, size[1] + 4))
    for got in net.run(y, threads=(1, 2)):
        assert np.array_equal(got, want)


def test_pools_of_a_window_that_nothing_fills():
    x = np.float32([[[1, 5, -2, 3]]])
    kernel, pads = [2**31 - 1], [2**30, 2**30]
    for op, want in (("MaxPool", [5] * 6), ("AveragePool", [1.75] * 6)):
        net = Net()
        out = net.onnx(op, 22, [net.feed(x)], kernel_shape=kernel, pads=pads)
        assert np.array_equal(net.run(out)[0], np.float32([[want]]))


def test_average_counts_padding_and_dilation():
    x = np.arange(1, 8, dtype=np.float32).reshape(1, 1, 7)
    net = Net()
    window = {"kernel_shape": [3], "pads": [2, 3], "dilations": [2], "strides": [2]}
    out = net.onnx("AveragePool", 22, [net.feed(x)], count_include_pad=1, ceil_mode=1, **window)
    padded = np.concatenate([np.zeros(2), x[0, 0], np.zeros(3)])
    want = [padded[at : at + 5 : 2].sum() / 3 for at in range(0, 8, 2)]
    want.append(padded[8:12:2].sum() / 2)  # the last window leaves the padding
    assert np.allclose(net.run(out)[0][0, 0], want[: net.run(out)[0].shape[-1]], atol=1e-6)


def test_regions_end_where_the_image_ends():
    """2^24 + 3 is no f32, so the end of the image was rounded up, and the pixel behind it was read."""
    size = 2**24 + 3
    memory = np.zeros(size + 1, np.float32)
    memory[size] = 9
    net = Net()
    x, rois = net.feed(memory[:size].reshape(1, 1, 1, size)), net.feed(np.float32([[0, 0, 0, 2**25, 0]]))
    assert net.run(net.onnx("MaxRoiPool", 22, [x, rois], pooled_shape=[1, 1]))[0].item() == 0


@pytest.mark.parametrize("length", [23, 24, 25, 49])
@pytest.mark.parametrize("size", [5, 1003])
def test_the_longest_chains(length, size):
    """The rest of a row goes through buffers: two of each of 24 instructions, the first value, the result."""

    def build(b, x, y):
        for _ in range(length):
            x = b.op("fma", x, y, y)
        return x

    rng, net = np.random.default_rng(4), Net()
    x, y = (rng.integers(-1, 2, size).astype(np.float32) for _ in range(2))
    out = net.node("Formula", [net.feed(x), net.feed(y)], bytecode=formula(2, build))
    for got in net.run(out, threads=(1, 2)):
        want = x
        for _ in range(length):
            want = want * y + y
        assert np.array_equal(got, want)


@pytest.mark.parametrize("scale", [1e-38, 1e-41])
def test_sums_of_zero_by_the_least_scales(scale):
    """The reciprocal of a denormal number is infinite, and 0 has to stay the zero point all the same."""
    net = Net()
    a, b = np.uint8([7, 8, 6] * 30), np.uint8([3, 3, 3] * 30)
    terms = {"a_scale": 1.0, "a_zero": 7, "b_scale": 1.0, "b_zero": 3, "y_scale": scale, "y_zero": 100}
    out = net.node("IntegerAdd", [net.feed(a), net.feed(b)], dtypes=[2], **terms)
    assert np.array_equal(net.run(out)[0], np.uint8([100, 255, 0] * 30))


def test_strides_whose_product_is_large():
    """Two strides of 2^20 by 2^20 channels: the bytes that rows span exceeded 2^63, and no row was computed."""
    channels, far, net = 1 << 20, 1 << 20, Net()
    w = np.zeros((8, channels, 1, 1), np.float32)
    w[:, 0] = 2
    x = net.blocked(net.feed(np.ones((1, channels, 1, 1), np.float32)))
    operands = [x, net.constant(w, "conv16"), net.constant(np.full(8, 5, np.float32))]
    sizes = {"channels_in": channels, "channels_out": 8, "kernel_shape": [1, 1]}
    window = {"strides": [far, far], "pads": [far, 0, far, 0]}
    y = net.node("Conv", operands, layout=c16(), algorithm="direct", **sizes, **window)
    got = net.run(net.plain(y))[0]
    assert np.array_equal(got, np.broadcast_to(np.float32([5, 7, 5]).reshape(1, 1, 3, 1), (1, 8, 3, 1)))


@pytest.mark.parametrize(
    ("batch", "channels", "outputs", "size"), [(1, 2, 0, 3), (0, 2, 3, 3), (1, 0, 3, 3), (1, 2, 3, 0)]
)
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_plain_convolutions_of_nothing(operator, batch, channels, outputs, size):
    """Images, channels, outputs or pixels that are none: the outputs of one product were 0, and divided by."""
    net = Net()
    x = net.feed(np.ones((batch, channels, 4, size, 5), np.float32))
    w = np.ones((outputs, channels, 1, 1, 2) if operator == "Conv" else (channels, outputs, 1, 1, 2), np.float32)
    bias = net.constant(np.full(outputs, 2, np.float32))
    y = net.node(operator, [x, net.constant(w), bias], domain="", kernel_shape=[1, 1, 2])
    if operator == "Conv" and outputs == 0:
        with pytest.raises(ArgumentError, match="Conv takes plain f32"):
            net.run(y)
        return
    got = net.run(y)[0]
    width = 4 if operator == "Conv" else 6
    assert got.shape == (batch, outputs, 4, size, width)
    if channels == 0:
        assert (got == 2).all()
