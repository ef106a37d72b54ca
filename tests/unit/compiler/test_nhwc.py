"""Models with channels last: no transpose is left where a conversion can do its work."""

from __future__ import annotations

import json

import numpy as np
import pytest

import opforge as of
from opforge.cli import main
from tests.unit.compiler.graphs import model, node, ops, same

RNG = np.random.default_rng(17)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _net(channels, sizes):
    """Conv, Relu and pool between two transposes, as converters of channels-last models write it."""
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Transpose", "p", "y", perm=[0, 2, 3, 1]),
    ]
    return model(nodes, {"x": sizes}, {"w": _random(20, channels, 3, 3) * 0.2})


@pytest.mark.parametrize(
    ("channels", "expected"),
    [(3, ["Conv", "Pool", "Reorder"]), (24, ["Reorder", "Conv", "Pool", "Reorder"])],
)
def test_transposes_at_the_border(channels, expected):
    program, report = same(
        _net(channels, ["N", "H", "W", channels]), {"x": _random(2, 10, 13, channels)}, rtol=1e-4, atol=1e-4
    )
    assert ops(program) == expected
    assert report.conversions[-1].startswith("c16 -> nhwc: ")
    assert len(report.conversions) == len(expected) - 2 if channels > 3 else 1


def test_a_transpose_that_others_read_stays():
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w", "c", kernel_shape=[1, 1]),
        node("ReduceMax", "t", "m"),
        node("Add", "c m", "y"),
    ]
    proto = model(nodes, {"x": [1, 5, 6, 24]}, {"w": _random(16, 24, 1, 1)})
    program, _ = same(proto, {"x": _random(1, 5, 6, 24)}, rtol=1e-4, atol=1e-4)
    assert ops(program).count("Transpose") == 1


def test_other_orders_stay():
    nodes = [node("Transpose", "x", "t", perm=[0, 3, 2, 1]), node("Conv", "t w", "y", kernel_shape=[1, 1])]
    proto = model(nodes, {"x": [1, 5, 6, 24]}, {"w": _random(16, 24, 1, 1)})
    program, _ = same(proto, {"x": _random(1, 5, 6, 24)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == ["Transpose", "Reorder", "Conv", "Reorder"]


def test_inspect_shows_what_is_converted(tmp_path, capsys):
    path = tmp_path / "net.bin"
    of.compile(_net(24, [1, 10, 12, 24]), path)
    assert main(["inspect", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["conversions"]
    assert [(c["from"], c["to"], c["bytes"]) for c in found] == [
        ("nhwc", "c16", 4 * 10 * 12 * 24),
        ("c16", "nhwc", 4 * 5 * 6 * 20),
    ]
    assert main(["inspect", str(path)]) == 0
    assert "converts nhwc to c16: x (11520 bytes)" in capsys.readouterr().out


@pytest.mark.parametrize("bias", [False, True])
def test_pointwise_convolutions_between_transposes_are_products(bias):
    """Two of them, with activations and numbers behind; nothing is transposed or blocked."""
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w b" if bias else "t w", "c", kernel_shape=[1, 1]),
        node("Relu", "c", "r"),
        node("Mul", "r half", "m"),
        node("Transpose", "m", "u", perm=[0, 2, 3, 1]),
        node("Transpose", "u", "v", perm=[0, 3, 1, 2]),
        node("Conv", "v k", "d"),
        node("Transpose", "d", "y", perm=[0, 2, 3, 1]),
    ]
    weights = {"w": _random(40, 24, 1, 1), "k": _random(7, 40, 1, 1), "half": np.float32(0.5)}
    proto = model(nodes, {"x": ["N", "H", "W", 24]}, weights | ({"b": _random(40)} if bias else {}))
    program, report = same(proto, {"x": _random(2, 5, 6, 24)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == ["MatMul", "MatMul"]
    assert report.conversions == []


def test_other_convolutions_between_transposes_stay_convolutions():
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w", "c", kernel_shape=[1, 1], strides=[2, 2]),
        node("Transpose", "c", "y", perm=[0, 2, 3, 1]),
    ]
    proto = model(nodes, {"x": [1, 6, 6, 24]}, {"w": _random(16, 24, 1, 1)})
    program, _ = same(proto, {"x": _random(1, 6, 6, 24)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == ["Reorder", "Conv", "Reorder"]
