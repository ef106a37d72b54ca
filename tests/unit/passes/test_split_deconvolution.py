"""Transposed convolutions of few channels as 1x1 convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.graphs import model, node, ops, same

RNG = np.random.default_rng(13)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("out", "k"), [(1, 3), (1, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_split(out, k, bias):
    constants = {"w": _random(24, out, k, k), "two": np.float32(2)} | ({"b": _random(out)} if bias else {})
    nodes = [node("ConvTranspose", "x w" + " b" * bias, "c", strides=[k, k], kernel_shape=[k, k])]
    nodes += [node("Sigmoid", "c", "s"), node("Mul", "two s", "y")]
    proto = model(nodes, {"x": ["N", 24, "H", "W"]}, constants)
    program, report = same(proto, {"x": _random(2, 24, 5, 6)}, rtol=1e-4, atol=1e-5)
    assert ops(program) == ["Reorder", "Conv", "Reorder", "DepthToSpace"]
    assert report.fused == {"Conv + Sigmoid + Mul": 1}


@pytest.mark.parametrize("out", [1, 3])
def test_two_by_two_writes_the_plain_result(out):
    nodes = [node("ConvTranspose", "x w", "c", strides=[2, 2]), node("Sigmoid", "c", "y")]
    proto = model(nodes, {"x": ["N", 24, "H", "W"]}, {"w": _random(24, out, 2, 2)})
    program, report = same(proto, {"x": _random(2, 24, 5, 6)}, rtol=1e-4, atol=1e-5)
    assert ops(program) == ["Reorder", "ConvTranspose"]
    assert report.fused == {"ConvTranspose + Sigmoid": 1}


@pytest.mark.parametrize(
    ("out", "attributes"),
    [(2, {"strides": [3, 3]}), (1, {"strides": [2, 2]}), (1, {"strides": [3, 3], "pads": [1, 0, 0, 0]})],
)
def test_others_stay(out, attributes):
    proto = model([node("ConvTranspose", "x w", "y", **attributes)], {"x": [1, 8, 5, 6]}, {"w": _random(8, out, 3, 3)})
    program, report = same(proto, {"x": _random(1, 8, 5, 6)}, rtol=1e-4, atol=1e-5)
    assert "split_deconvolution" not in report.passes
    assert "ConvTranspose" in ops(program)


def test_operand_of_the_large_plane_stays_behind():
    nodes = [node("ConvTranspose", "x w", "c", strides=[3, 3]), node("Add", "c z", "y")]
    proto = model(nodes, {"x": [1, 8, 5, 6], "z": [1, 1, 15, 18]}, {"w": _random(8, 1, 3, 3)})
    program, _ = same(proto, {"x": _random(1, 8, 5, 6), "z": _random(1, 1, 15, 18)}, rtol=1e-4, atol=1e-5)
    assert ops(program) == ["Reorder", "Conv", "Reorder", "DepthToSpace", "Formula"]
