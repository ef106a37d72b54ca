"""Recurrent and attention nodes of files that lie about their weights, shapes and sizes are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.kernels.graphs import Net

X, H, LANES = 3, 5, 16


def _lstm(**changes: Any) -> tuple[Net, int]:
    """A small packed LSTM with some parts replaced."""
    shapes = {"w": (X, 4 * LANES), "r": (H, 4 * LANES), "bias": (4 * LANES,), "extra": (3 * LANES,)}
    net = Net()
    x = net.feed(np.zeros(changes.get("x", (2, 1, X)), np.float32))
    parts = []
    for name, shape in shapes.items():
        data = np.zeros(changes.get(name, shape), np.float32)
        parts.append(net.constant(data, "matmul16" if name in ("w", "r") and "plain" not in changes else ""))
    attributes = {"hidden_size": changes.get("hidden", H), "direction": changes.get("direction", "forward")}
    outputs = net.node("LSTM", [x, -1, -1, -1, *parts[: changes.get("parts", 4)]], dtypes=[1, 1, 1], **attributes)
    return net, outputs[0]


def test_the_whole_node_runs() -> None:
    net, out = _lstm()
    assert net.run(out)[0].shape == (2, 1, 1, H)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plain": True}, "the weights are not constants packed for the node"),
        ({"r": (H + 1, 4 * LANES)}, "the weights are not constants packed for the node"),
        ({"w": (X, 3 * LANES)}, "the weights are not constants packed for the node"),
        ({"bias": (8,)}, "the weights are not constants packed for the node"),
        ({"extra": (8,)}, "the weights are not constants packed for the node"),
        ({"parts": 1}, "the weights are not constants packed for the node"),
        ({"direction": "bidirectional"}, "the weights are not constants packed for the node"),
        ({"direction": "sideways"}, "direction is not forward, reverse or bidirectional"),
        ({"hidden": 0}, "hidden_size is not 1 to"),
        ({"hidden": 1 << 40}, "hidden_size is not 1 to"),
        ({"hidden": 17}, "the weights are not constants packed for the node"),
        ({"x": (2, 1, X + 1)}, "as many columns as the weights have"),
        ({"x": (2, X)}, "X does not have the shape"),
    ],
)
def test_recurrent(changes: dict[str, Any], words: str) -> None:
    net, out = _lstm(**changes)
    with pytest.raises(OpforgeError, match=words):
        net.run(out)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({3: (1, 2, 4, 9)}, "the mask is not f32 or bool"),
        ({3: (2, 2, 4, 6)}, "the mask is not f32 or bool"),
        ({4: (1, 2, 3, 8)}, "past_key and past_value"),
        ({4: (1, 2, 3, 8), 5: (1, 2, 2, 8)}, "past_key and past_value"),
        ({4: (1, 1, 3, 8), 5: (1, 1, 3, 8)}, "past_key and past_value"),
        ({4: (2, 3, 8), 5: (2, 3, 8)}, "past_key and past_value"),
    ],
)
def test_attention(shapes: dict[int, tuple[int, ...]], words: str) -> None:
    net = Net()
    given = {0: (1, 2, 4, 8), 1: (1, 2, 6, 8), 2: (1, 2, 6, 8), **shapes}
    inputs = [net.feed(np.zeros(given[k], np.float32)) if k in given else -1 for k in range(max(given) + 1)]
    with pytest.raises(OpforgeError, match=words):
        net.run(net.onnx("Attention", 24, inputs, dtypes=[1, 1, 1])[0])


def test_lengths_of_the_padded_keys() -> None:
    """Lengths come from data: beyond the keys they are all keys, below 0 none, and a row without keys is 0."""
    net = Net()
    data = [np.ones((3, 1, 2, 4), np.float32), *[np.ones((3, 1, 5, 4), np.float32)] * 2]
    inputs = [*map(net.feed, data), -1, -1, -1, net.feed(np.array([-7, 99, 2], np.int64))]
    (got,) = net.run(net.onnx("Attention", 24, inputs))
    np.testing.assert_allclose(got[:, 0, 0, 0], [0, 1, 1], rtol=1e-6)
