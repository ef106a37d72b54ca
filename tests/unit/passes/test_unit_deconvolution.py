"""Transposed convolutions of stride 1 as convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.graphs import compiled, model, native, node, ops, same
from tests.unit.compiler.program_reference import Runner
from tests.unit.kernels.reference import convolve_transposed

RNG = np.random.default_rng(22)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 2), {"pads": [2, 0, 1, 1]}),
        ((3, 3), {"dilations": [2, 3], "pads": [1, 2, 3, 4], "group": 4}),
        ((1, 1), {"group": 2}),
        ((5,), {"group": 2, "pads": [1, 2]}),
        ((2, 3, 2), {"pads": [0, 1, 0, 1, 0, 1]}),
        ((3, 3), {"dilations": [2, 2], "output_padding": [1, 1]}),
    ],
)
def test_a_convolution_with_turned_weights(kernel, attributes):
    n, group = len(kernel), attributes.get("group", 1)
    x, w, b = _random(2, 8, *[7, 6, 5][:n]), _random(8, 3, *kernel), _random(3 * group)
    proto = model([node("ConvTranspose", "x w b", "y", **attributes)], {"x": list(x.shape)}, {"w": w, "b": b})
    pads, dilations = attributes.get("pads", [0] * 2 * n), attributes.get("dilations", [1] * n)
    want = convolve_transposed(x, w, b, [1] * n, pads, dilations, group, int("output_padding" in attributes))
    program, report = compiled(proto)
    for got in (native(program, {"x": x}), Runner(program).run({"x": x})):
        np.testing.assert_allclose(got["y"], want, rtol=1e-4, atol=1e-4)
    assert report.passes["unit_deconvolution"] == 1
    assert "ConvTranspose" not in ops(program)


@pytest.mark.parametrize("attributes", [{"pads": [3, 0, 0, 0]}, {"output_shape": [9, 8]}, {"auto_pad": "SAME_UPPER"}])
def test_others_stay(attributes):
    proto = model([node("ConvTranspose", "x w", "y", **attributes)], {"x": [1, 8, 7, 6]}, {"w": _random(8, 4, 3, 3)})
    program, report = same(proto, {"x": _random(1, 8, 7, 6)}, rtol=1e-4, atol=1e-4)
    assert "unit_deconvolution" not in report.passes
    assert ops(program) == ["ConvTranspose"]
