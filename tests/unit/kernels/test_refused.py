"""What kernels refuse, and with which words."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.kernels.graphs import Net, c16, formula


def image(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def conv(net: Net, x: int, w: int, **attributes):
    base = {"algorithm": "direct", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "channels_in": 16, "channels_out": 16}
    return net.plain(net.node("Conv", [x, w], layout=c16(), **base | attributes))


def test_packing_is_checked():
    net = Net()
    x = net.blocked(net.feed(image(1, 16, 5, 5)), 1, 1, 1, 1)
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "deconv16"))
    with pytest.raises(OpforgeError, match="packed as conv16"):
        net.run(out)


def test_matmul_weights_are_checked():
    net = Net()
    out = net.node("MatMul", [net.feed(image(2, 8)), net.constant(image(8, 4), "matmul16")], K=8, N=5)
    with pytest.raises(OpforgeError, match=r"\[K=8, N=5\] packed as matmul16"):
        net.run(out)


def test_halo_must_reach():
    net = Net()
    x = net.blocked(net.feed(image(1, 16, 5, 5)))
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "conv16"))
    with pytest.raises(OpforgeError, match="halo of X is smaller"):
        net.run(out)


def test_channels_must_fit():
    net = Net()
    x = net.blocked(net.feed(image(1, 8, 5, 5)), 1, 1, 1, 1)
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "conv16"))
    with pytest.raises(OpforgeError, match=r"\[N, 16, H, W\]"):
        net.run(out)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"activation": "softsign"}, "unknown activation"),
        ({"algorithm": "fft"}, "unknown algorithm"),
        ({"strides": [0, 1]}, "out of range"),
        ({"pads": [1, 1, 1, -1]}, "out of range"),
    ],
)
def test_attributes_are_checked(attributes, words):
    net = Net()
    x = net.blocked(net.feed(image(1, 16, 5, 5)), 1, 1, 1, 1)
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "conv16"), **attributes)
    with pytest.raises(OpforgeError, match=words):
        net.run(out)


def test_epilogue_operand_must_broadcast():
    blob = formula(2, lambda b, x, y: b.op("add", x, y))
    net = Net()
    inputs = [net.feed(image(2, 8)), net.constant(image(8, 4), "matmul16"), -1, net.feed(image(3))]
    out = net.node("MatMul", inputs, K=8, N=4, epilogue=blob)
    with pytest.raises(OpforgeError, match="has 3 where the output has 4"):
        net.run(out)


def test_epilogue_operand_must_be_there():
    blob = formula(2, lambda b, x, y: b.op("add", x, y))
    net = Net()
    out = net.node("MatMul", [net.feed(image(2, 8)), net.constant(image(8, 4), "matmul16")], K=8, N=4, epilogue=blob)
    with pytest.raises(OpforgeError, match="reads 1 inputs, the node has 0"):
        net.run(out)


def test_attention_shapes_must_fit():
    net = Net()
    q, k, v = (net.feed(image(1, 2, 4, d)) for d in (8, 6, 8))
    with pytest.raises(OpforgeError, match="do not fit the node's heads"):
        net.run(net.onnx("Attention", 23, [q, k, v]))


def test_resize_of_nothing():
    net = Net()
    scales = net.constant(np.array([1, 1, -1, 2], np.float32))
    with pytest.raises(OpforgeError, match="do not fit together"):
        net.run(net.onnx("Resize", 19, [net.feed(image(1, 1, 4, 4)), -1, scales]))


def test_more_than_there_is():
    net = Net()
    inputs = [net.feed(image(2, 3)), net.constant(np.array([4], np.int64))]
    with pytest.raises(OpforgeError, match="K is 4, expected 0 to 3"):
        net.run(net.onnx("TopK", 11, inputs, dtypes=[1, 7])[0])
