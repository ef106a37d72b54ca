"""Strided transposed convolutions as one convolution of the small image."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.graphs import model, node, ops, same

RNG = np.random.default_rng(21)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "extra"),
    [
        ((4, 4), 2, (1, 1, 1, 1), (0, 0)),
        ((3, 3), 2, (1, 1, 1, 1), (1, 1)),
        ((3, 3), 2, (0, 1, 1, 0), (0, 0)),
        ((5, 5), 2, (2, 2, 2, 2), (1, 1)),
        ((2, 4), 2, (0, 1, 0, 1), (0, 0)),
        ((7, 6), 3, (2, 1, 2, 2), (0, 0)),
        ((16, 16), 8, (4, 4, 4, 4), (0, 0)),
    ],
)
@pytest.mark.parametrize("out", [16, 3])
def test_one_convolution_and_a_move(kernel, stride, pads, extra, out):
    attributes = {"strides": [stride] * 2, "pads": pads, "output_padding": extra, "kernel_shape": kernel}
    constants = {"w": _random(20, out, *kernel) * 0.1, "b": _random(out)}
    nodes = [node("ConvTranspose", "x w b", "c", **attributes), node("Relu", "c", "y")]
    proto = model(nodes, {"x": ["N", 20, "H", "W"]}, constants)
    program, report = same(proto, {"x": _random(2, 20, 5, 6)}, rtol=1e-4, atol=1e-4)
    assert report.passes["subpixel_deconvolution"] == 1
    moves = ["DepthToSpace", "Reorder"] if out == 16 else ["Reorder", "DepthToSpace"]
    assert ops(program) == ["Reorder", "Conv", *moves]
    assert report.fused == {"Conv + relu": 1}


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 2]},  # gives one pixel more
        {"strides": [2, 1], "pads": [1, 1, 1, 1], "output_padding": [1, 0]},
    ],
)
def test_others_stay(attributes):
    weight = _random(8, 4, 3, 3)
    proto = model([node("ConvTranspose", "x w", "y", **attributes)], {"x": [1, 8, 5, 6]}, {"w": weight})
    program, report = same(proto, {"x": _random(1, 8, 5, 6)}, rtol=1e-4, atol=1e-4)
    assert "subpixel_deconvolution" not in report.passes
    assert ops(program) == ["ConvTranspose"]
