"""Cases of matrix products and convolutions: each gives a net, its output, a float64 reference and a tolerance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.unit.kernels.graphs import Net, c16, formula
from tests.unit.kernels.reference import convolve, convolve_transposed

Case = tuple[str, Net, int, np.ndarray, float]
ACTIVATIONS = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hardsigmoid": lambda x: np.clip(x * 0.2 + 0.5, 0, 1),
}


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def gated(b, x, y):
    return b.op("add", b.op("mul", b.op("sigmoid", x), y), x)


def gated_reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return y / (1 + np.exp(-x)) + x


def matmuls(rng: np.random.Generator) -> Iterator[Case]:
    sizes = [(m, k, n) for m in (*range(0, 16), 29, 57, 100) for k, n in ((13, 9), (5, 33))]
    sizes += [(m, 24, n) for m in (1, 3, 14, 45) for n in (1, 7, 8, 15, 16, 17, 24, 31, 48, 130, 300)]
    sizes += [(5, 0, 20), (600, 40, 70), (3, 2000, 500)]
    for i, (m, k, n) in enumerate(sizes):
        a, b, bias = normal(rng, m, k), normal(rng, k, n), normal(rng, n)
        net = Net()
        activation = list(ACTIVATIONS)[i % 4]
        inputs = [net.feed(a), net.constant(b, "matmul16"), net.constant(bias) if i % 5 else -1]
        out = net.node("MatMul", inputs, K=k, N=n, activation=activation)
        reference = a.astype(np.float64) @ b + (bias if i % 5 else 0)
        yield f"matmul {m}x{k}x{n} {activation}", net, out, ACTIVATIONS[activation](reference), 1e-6 * max(1, k**0.5)


def epilogues(rng: np.random.Generator) -> Iterator[Case]:
    for lead, m, k, n in [((), 5, 7, 9), ((), 129, 64, 200), ((3,), 6, 5, 24), ((2, 3), 4, 5, 17), ((), 1, 16, 40)]:
        a, b, bias = normal(rng, *lead, m, k), normal(rng, k, n), normal(rng, n)
        x = a.astype(np.float64) @ b + bias
        shapes = [(), (n,), (m, 1), (m, n), (*lead, m, n), (*lead, 1, n)]
        shapes += [(lead[0], *[1] * (len(lead) - 1), m, 1)] if lead else []
        for shape in shapes:
            other = normal(rng, *shape)
            net = Net()
            inputs = [net.feed(a), net.constant(b, "matmul16"), net.constant(bias), net.feed(other)]
            out = net.node("MatMul", inputs, K=k, N=n, epilogue=formula(2, gated))
            yield f"matmul epilogue {lead}{m}x{k}x{n} {shape}", net, out, gated_reference(x, other), 4e-6


def batches(rng: np.random.Generator) -> Iterator[Case]:
    shapes = [
        ((5, 7), (7, 9)),
        ((2, 3, 5, 7), (2, 3, 7, 9)),
        ((2, 1, 5, 7), (1, 3, 7, 9)),
        ((7,), (7, 9)),
        ((5, 7), (7,)),
    ]
    shapes += [((4, 5, 7), (7, 20)), ((7, 9), (4, 9, 5)), ((0, 3, 4), (4, 5)), ((3, 4, 0), (3, 0, 5))]
    # Few rows, or one column, in batches: B is read where it lies.
    shapes += [((6, 1, 64), (6, 64, 40)), ((2, 3, 2, 33), (2, 3, 33, 200)), ((3, 1, 1, 20), (1, 4, 20, 17))]
    shapes += [((5, 9, 48), (5, 48, 1)), ((4, 1, 32), (32, 50)), ((1, 1, 32), (3, 32, 20))]
    shapes += [((300, 70), (70, 300)), ((1, 1, 200, 65), (1, 1, 65, 300))]
    for a_shape, b_shape in shapes:
        a, b = normal(rng, *a_shape), normal(rng, *b_shape)
        net = Net()
        out = net.onnx("MatMul", 13, [net.feed(a), net.feed(b)])
        yield f"MatMul {a_shape} {b_shape}", net, out, np.matmul(a.astype(np.float64), b), 1e-5
    for a_shape, b_shape in [
        ((5, 7), (9, 7)),
        ((2, 3, 5, 7), (2, 3, 19, 7)),
        ((12, 60, 32), (12, 60, 32)),
        ((2, 3, 1, 40), (2, 3, 19, 40)),
        ((3, 1, 1, 40), (1, 2, 19, 40)),
    ]:
        a, b = normal(rng, *a_shape), normal(rng, *b_shape)
        net = Net()
        out = net.node("BatchMatMul", [net.feed(a), net.feed(b)], transB=1)
        reference = np.matmul(a.astype(np.float64), np.swapaxes(b, -1, -2))
        yield f"BatchMatMul {a_shape} {b_shape}", net, out, reference, 1e-5
    for dtype in (np.int32, np.int64, np.float64):
        a, b = (rng.integers(-9, 9, (2, 5, 7)).astype(dtype), rng.integers(-9, 9, (7, 3)).astype(dtype))
        net = Net()
        out = net.onnx(
            "MatMul", 13, [net.feed(a), net.feed(b)], dtypes=[{np.int32: 6, np.int64: 7, np.float64: 11}[dtype]]
        )
        yield f"MatMul {dtype.__name__}", net, out, np.matmul(a.astype(np.float64), b), 0.0


def gemms(rng: np.random.Generator) -> Iterator[Case]:
    for ta, tb, c in product((0, 1), (0, 1), (None, (1,), (9,), (5, 1), (5, 9))):
        a, b = normal(rng, *((7, 5) if ta else (5, 7))), normal(rng, *((9, 7) if tb else (7, 9)))
        net = Net()
        inputs = [net.feed(a), net.feed(b)]
        reference = 0.5 * ((a.T if ta else a).astype(np.float64) @ (b.T if tb else b))
        if c is not None:
            bias = normal(rng, *c)
            inputs.append(net.feed(bias))
            reference = reference + 2 * bias.astype(np.float64)
        out = net.onnx("Gemm", 13, inputs, transA=ta, transB=tb, alpha=0.5, beta=2.0)
        yield f"Gemm {ta}{tb} {c}", net, out, reference, 4e-6


PACKING = {"direct": "conv16", "first": "first16", "depthwise": "depthwise16", "winograd": "winograd16"}


def conv(
    rng: np.random.Generator,
    algorithm: str,
    size: tuple[int, int, int, int],
    channels_out: int,
    kernel: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilations: tuple[int, int] = (1, 1),
    activation: str = "",
    residual: bool | str = False,
    halo: tuple[int, int, int, int] = (0, 0, 0, 0),
    wider: tuple[int, int, int, int] = (0, 0, 0, 0),
    operand: str = "",
) -> Case:
    """One convolution.

    ``residual``: "first" = the activation follows the sum; ``wider``: halo of X beyond the padding; ``operand``:
    shape of an epilogue operand.
    """
    channels, depthwise = size[1], algorithm == "depthwise"
    x = normal(rng, *size)
    fan_in = (1 if depthwise else channels) * kernel[0] * kernel[1]
    w = (normal(rng, channels_out, 1 if depthwise else channels, *kernel) / fan_in**0.5).astype(np.float32)
    bias = normal(rng, channels_out)
    reference = convolve(x, w, bias, strides, pads, dilations, channels if depthwise else 1)
    if residual != "first":
        reference = ACTIVATIONS[activation](reference)
    frame = [p + e for p, e in zip(pads, wider, strict=True)]
    if algorithm == "winograd":
        for axis in (0, 1):
            reach = (reference.shape[2 + axis] + 3) // 4 * 4 + 2 - pads[axis] - size[2 + axis]
            frame[2 + axis] = max(frame[2 + axis], reach)
    net = Net()
    source = net.feed(x) if algorithm == "first" else net.blocked(net.feed(x), *frame)
    inputs = [source, net.constant(w, PACKING[algorithm]), net.constant(bias)]
    attributes = {}
    if residual:
        added = normal(rng, *reference.shape)
        reference = reference + added
        if residual == "first":
            reference = ACTIVATIONS[activation](reference)
            attributes["activation_on_sum"] = 1
        inputs.append(net.blocked(net.feed(added), *halo))
    if operand:
        inputs += [-1] * (4 - len(inputs))
        n, c = size[0], channels_out
        shape = {
            "scalar": (),
            "channel": (c, 1, 1),
            "images": (n, c, 1, 1),
            "gate": (n, c, 1, 1),
            "same": reference.shape,
        }
        other = normal(rng, *shape[operand])
        fed = net.feed(other)
        inputs.append(net.blocked(fed) if operand == "gate" else net.blocked(fed, *halo) if operand == "same" else fed)
        reference = gated_reference(reference, other.astype(np.float64))
        attributes["epilogue"] = formula(2, gated)
    out = net.node(
        "Conv",
        inputs,
        layout=c16(*halo),
        algorithm=algorithm,
        kernel_shape=list(kernel),
        strides=list(strides),
        pads=list(pads),
        dilations=list(dilations),
        channels_in=channels,
        channels_out=channels_out,
        activation=activation,
        **attributes,
    )
    name = f"{algorithm} {size}>{channels_out} k{kernel} s{strides} p{pads} d{dilations}"
    name += f" {activation}{residual} {halo}{operand}"
    tolerance = 2e-5 if algorithm == "winograd" else 6e-6 if fan_in > 1000 else 3e-6  # one chain of fan_in terms
    return name, net, net.plain(out), reference, tolerance


def convolutions(rng: np.random.Generator) -> Iterator[Case]:
    one = (1, 1, 1, 1)
    for c, o in [(3, 5), (8, 16), (16, 8), (16, 24), (17, 33), (30, 12), (48, 96), (40, 72)]:
        for h, w in [(1, 1), (5, 7), (4, 33)]:
            yield conv(rng, "direct", (2, c, h, w), o, (1, 1))
        yield conv(rng, "direct", (1, c, 9, 14), o, (3, 3), (1, 1), one, activation="relu", residual=True, halo=one)
        yield conv(
            rng, "direct", (1, c, 9, 15), o, (3, 3), (2, 2), one, (1, 1), "hardswish", False, (2, 1, 0, 3), (1, 0, 1, 2)
        )
        yield conv(rng, "direct", (1, c, 5, 15), o, (1, 3), (1, 1), (0, 1, 0, 1))
        yield conv(rng, "direct", (1, c, 11, 15), o, (3, 2), (3, 3), (1, 0, 2, 1))
        yield conv(rng, "direct", (1, c, 9, 12), o, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2))
        yield conv(rng, "direct", (1, c, 9, 9), o, (3, 3), (2, 1), one, activation="hardsigmoid")
    for c, o in product((1, 3, 4), (8, 16, 5, 24, 40)):
        yield conv(rng, "first", (2, c, 12, 31), o, (3, 3), (2, 2), one, activation="relu", halo=one)
        yield conv(rng, "first", (1, c, 11, 23), o, (7, 7), (2, 2), (3, 3, 3, 3))
        yield conv(rng, "first", (1, c, 9, 23), o, (3, 3), (1, 1), one, residual=True)
        yield conv(rng, "first", (1, c, 9, 12), o, (4, 4), (4, 4))
        yield conv(rng, "first", (1, c, 9, 13), o, (3, 3), (1, 2), (2, 2, 2, 2), (2, 2))
    for c in (1, 8, 12, 17, 24, 48):
        for k, s in product((3, 5), ((1, 1), (2, 2), (2, 1), (1, 2))):
            yield conv(rng, "depthwise", (1, c, 9, 21), c, (k, k), s, (k // 2,) * 4, activation="hardswish", halo=one)
        yield conv(rng, "depthwise", (2, c, 9, 13), c, (7, 7), (1, 1), (3, 3, 3, 3), residual=True)
        yield conv(rng, "depthwise", (1, c, 9, 13), c, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2))
        yield conv(rng, "depthwise", (1, c, 9, 13), c, (3, 5), (3, 3), (1, 2, 1, 2))
    for c, o in [(16, 24), (24, 16), (20, 33), (96, 24)]:
        for h, w in [(12, 12), (13, 17), (24, 40)]:
            yield conv(rng, "winograd", (1, c, h, w), o, (3, 3), (1, 1), one, (1, 1), "relu", h == 13, one)
        yield conv(rng, "winograd", (2, c, 14, 14), o, (3, 3))
    for operand in ("scalar", "channel", "images", "gate", "same"):
        for halo in ((0, 0, 0, 0), (0, 2, 1, 0)):
            options = {
                "pads": one,
                "activation": "hardswish",
                "residual": halo[1] == 2,
                "halo": halo,
                "operand": operand,
            }
            yield conv(rng, "direct", (2, 16, 9, 13), 24, (3, 3), **options)
            yield conv(rng, "direct", (2, 20, 4, 7), 33, (3, 3), **options)
            yield conv(rng, "first", (1, 3, 9, 13), 40, (3, 3), **options)
            yield conv(rng, "depthwise", (2, 24, 9, 14), 24, (3, 3), **options)
            yield conv(rng, "winograd", (1, 16, 14, 17), 20, (3, 3), **options)


def late_convolutions(rng: np.random.Generator) -> Iterator[Case]:
    """Sums before the activation, and layers of few pixels and many weights: several rows and images at a time."""
    one = (1, 1, 1, 1)
    for activation in ("relu", "hardswish"):
        options = {"pads": one, "activation": activation, "residual": "first", "halo": one}
        yield conv(rng, "direct", (2, 20, 9, 13), 40, (3, 3), **options)
        yield conv(rng, "first", (1, 3, 9, 13), 24, (3, 3), **options)
        yield conv(rng, "depthwise", (2, 24, 9, 14), 24, (3, 3), **options)
        yield conv(rng, "winograd", (3, 16, 14, 17), 20, (3, 3), **options)
    for height, channels, out in [(7, 200, 40), (8, 184, 72), (1, 190, 32)]:
        yield conv(rng, "direct", (2, channels, height, 7), out, (3, 3), (1, 1), one)
        yield conv(rng, "direct", (3, channels, 2 * height, 14), out, (3, 3), (2, 2), one, halo=one)
    yield conv(rng, "direct", (2, 180, 9, 9), 64, (3, 3), (1, 1), (2, 1, 0, 1), (3, 2))
    yield conv(rng, "direct", (9, 64, 6, 5), 300, (3, 3), (1, 1), one)
    yield conv(rng, "winograd", (2, 200, 13, 15), 160, (3, 3), (1, 1), one)


def deconvolutions(rng: np.random.Generator) -> Iterator[Case]:
    for c, o in [(24, 24), (24, 1), (16, 16), (7, 40), (32, 30), (20, 3), (8, 2)]:
        x, w, bias = normal(rng, 2, c, 5, 19), normal(rng, c, o, 2, 2), normal(rng, o)
        reference = np.maximum(convolve_transposed(x, w, bias, (2, 2), [0] * 4, (1, 1)), 0)
        net = Net()
        inputs = [net.blocked(net.feed(x), 1, 1, 1, 1), net.constant(w, "deconv16"), net.constant(bias)]
        attributes = {
            "kernel_shape": [2, 2],
            "strides": [2, 2],
            "channels_in": c,
            "channels_out": o,
            "activation": "relu",
        }
        out = net.node("ConvTranspose", inputs, layout=c16(0, 1, 1, 0), **attributes)
        yield f"deconv {c}>{o}", net, net.plain(out), reference, 3e-6
        if o > 4:
            continue
        other = normal(rng, 2, o, 10, 1)
        blob = formula(2, gated)
        out = net.node("ConvTranspose", [*inputs, net.feed(other)], epilogue=blob, **attributes)
        yield f"deconv {c}>{o} plain", net, out, gated_reference(reference, other.astype(np.float64)), 3e-6


def plain_convolutions(rng: np.random.Generator) -> Iterator[Case]:
    layers = [(1, 3, 5), (2, 4, 6), (6, 6, 6), (1, 20, 40)]
    for n, (g, c, m), (k, s, d, p) in product((1, 2, 3), layers, [(3, 1, 1, 1), (2, 2, 1, 0), (3, 2, 2, 2)]):
        size = [[9], [9, 11], [5, 6, 7]][n - 1]
        x, w, bias = normal(rng, 2, c, *size), normal(rng, m, c // g, *[k] * n), normal(rng, m)
        turned = normal(rng, c, m // g, *[k] * n)
        attributes = {"strides": [s] * n, "dilations": [d] * n, "pads": [p] * 2 * n, "group": g}
        net = Net()
        out = net.onnx("Conv", 11, [net.feed(x), net.feed(w), net.feed(bias)], **attributes)
        window = ([s] * n, [p] * 2 * n, [d] * n, g)
        reference = convolve(x, w, bias, *window)
        yield f"Conv {n}-D {g} {c}>{m} k{k} s{s} d{d}", net, out, reference, 5e-6
        extra = 1 if s > 1 else 0
        net = Net()
        inputs = [net.feed(x), net.feed(turned), net.feed(bias)]
        out = net.onnx("ConvTranspose", 11, inputs, output_padding=[extra] * n, **attributes)
        reference = convolve_transposed(x, turned, bias, *window, extra)
        yield f"ConvTranspose {n}-D {g} {c}>{m} k{k} s{s} d{d}", net, out, reference, 5e-6


FAMILIES = (
    matmuls,
    epilogues,
    batches,
    gemms,
    convolutions,
    late_convolutions,
    deconvolutions,
    plain_convolutions,
)
