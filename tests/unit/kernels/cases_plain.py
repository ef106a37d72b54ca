"""Cases of operators on plain tensors that are wide enough for vectors, and for work that is cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.unit.kernels.cases_products import Case, normal
from tests.unit.kernels.graphs import Net
from tests.unit.kernels.reference import convolve, convolve_transposed, pad, pool_average, windows


def wide_pools(rng: np.random.Generator) -> Iterator[Case]:
    for width, (k, s, d) in product((3, 7, 19, 33, 70), ((2, 2, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2), (4, 3, 1))):
        x, pads = normal(rng, 1, 2, 9, width), [1, 1, 1, 1]
        window = {"kernel_shape": [k, k], "strides": [s, s], "pads": pads}
        if (k - 1) * d + 1 <= width + 2:
            taps = windows(pad(x, pads, -np.inf), [k, k], [s, s], [d, d])
            net = Net()
            out = net.onnx("MaxPool", 12, [net.feed(x)], dilations=[d, d], **window)
            yield f"MaxPool {width} k{k} s{s} d{d}", net, out, taps.max((4, 5)), 0.0
        for counted, ceil in product((0, 1), (0, 1)):
            if d > 1:
                continue
            net = Net()
            out = net.onnx("AveragePool", 19, [net.feed(x)], count_include_pad=counted, ceil_mode=ceil, **window)
            reference = pool_average(x, [k, k], [s, s], pads, counted, ceil)
            yield f"AveragePool {width} k{k} s{s} {counted}{ceil}", net, out, reference, 1e-6


def wide_convolutions(rng: np.random.Generator) -> Iterator[Case]:
    layers = [
        # size, groups, channels, outputs, kernel, stride, dilation, padding
        ((50,), 1, 20, 24, (5,), 1, 2, 4),
        ((70,), 12, 12, 12, (7,), 1, 1, 3),
        ((70,), 6, 12, 12, (4,), 2, 1, 1),
        ((60,), 1, 3, 5, (1,), 1, 1, 0),
        ((6, 37), 1, 5, 18, (3, 3), 2, 1, 1),
        ((5, 6, 21), 1, 3, 20, (3, 3, 3), 1, 1, 1),
        ((4, 5, 20), 4, 4, 8, (3, 2, 3), 1, 1, 1),
        ((40, 130), 1, 3, 40, (4, 4), 2, 1, 1),
        ((1, 3000), 1, 2, 3, (1, 40), 9, 1, 0),
    ]
    for size, g, c, m, kernel, s, d, p in layers:
        n = len(size)
        x, bias = normal(rng, 2, c, *size), normal(rng, m)
        w, turned = normal(rng, m, c // g, *kernel), normal(rng, c, m // g, *kernel)
        attributes = {"strides": [s] * n, "dilations": [d] * n, "pads": [p] * 2 * n, "group": g}
        window = ([s] * n, [p] * 2 * n, [d] * n, g)
        net = Net()
        out = net.onnx("Conv", 11, [net.feed(x), net.feed(w), net.feed(bias)], **attributes)
        yield f"Conv {size} {g} {c}>{m} k{kernel}", net, out, convolve(x, w, bias, *window), 5e-6
        net = Net()
        out = net.onnx("ConvTranspose", 11, [net.feed(x), net.feed(turned), net.feed(bias)], **attributes)
        reference = convolve_transposed(x, turned, bias, *window)
        yield f"ConvTranspose {size} {g} {c}>{m} k{kernel}", net, out, reference, 5e-6


def thin_products(rng: np.random.Generator) -> Iterator[Case]:
    """Few rows, one column, and vectors: B is not packed."""
    for m, k, n in (
        (1, 20, 16),
        (1, 40, 300),
        (2, 100, 33),
        (3, 100, 33),
        (7, 50, 1),
        (30, 17, 1),
        (1, 300, 1),
        (2, 9000, 20),
    ):
        for turned in (False, True):
            a, b = normal(rng, m, k), normal(rng, k, n)
            net = Net()
            held = net.feed(np.ascontiguousarray(b.T) if turned else b)
            out = net.node("BatchMatMul", [net.feed(a), held], transB=int(turned))
            yield f"thin {m}x{k}x{n} {turned}", net, out, a.astype(np.float64) @ b.astype(np.float64), 5e-6


FAMILIES = (wide_pools, wide_convolutions, thin_products)
