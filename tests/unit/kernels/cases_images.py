"""Cases of images, rows, attention and reductions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.unit.kernels.cases_products import Case, gated, gated_reference, normal
from tests.unit.kernels.graphs import Net, c16, formula
from tests.unit.kernels.reference import group_normal, pool_average, pool_max


def images(rng: np.random.Generator) -> Iterator[Case]:
    for c in (1, 5, 8, 16, 20, 24, 40):
        x = normal(rng, 2, c, 7, 13)

        def start() -> tuple[Net, int]:
            net = Net()
            return net, net.blocked(net.feed(x), 1, 2, 3, 0)  # noqa: B023 - used within the iteration

        net, blocked = start()
        yield f"Reorder {c}", net, net.plain(net.blocked(blocked, 2, 0, 1, 1)), x, 0.0
        net, blocked = start()
        mean = x.mean((2, 3), keepdims=True, dtype=np.float64)
        yield (
            f"GlobalAveragePool {c}",
            net,
            net.plain(net.node("GlobalAveragePool", [blocked], layout=c16())),
            mean,
            1e-6,
        )
        net, blocked = start()
        out = net.node("Resize", [blocked], layout=c16(1, 1, 1, 1), scales_h=2, scales_w=3, mode="nearest")
        yield f"Resize {c}", net, net.plain(out), x.repeat(2, 2).repeat(3, 3), 0.0
        window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
        net, blocked = start()
        out = net.node("Pool", [blocked], layout=c16(1, 1, 1, 1), mode="max", **window)
        yield (
            f"Pool max {c}",
            net,
            net.plain(out),
            pool_max(x, (3, 3), (2, 2), [1] * 4),
            0.0,
        )
        for counted, ceil in product((0, 1), (0, 1)):
            net, blocked = start()
            window = {"kernel_shape": [3, 2], "strides": [3, 2], "pads": [1, 1, 1, 1]}
            options = {"count_include_pad": counted, "ceil_mode": ceil}
            out = net.node("Pool", [blocked], layout=c16(), mode="average", **window, **options)
            reference = pool_average(x, (3, 2), (3, 2), [1] * 4, counted, ceil)
            yield f"Pool average {c} {counted}{ceil}", net, net.plain(out), reference, 1e-6
        net, blocked = start()
        gate = normal(rng, 2, c, 1, 1)
        out = net.node(
            "Formula", [blocked, net.blocked(net.feed(gate))], layout=c16(1, 2, 3, 0), bytecode=formula(2, gated)
        )
        reference = gated_reference(x.astype(np.float64), gate.astype(np.float64))
        yield f"Formula c16 {c}", net, net.plain(out), reference, 2e-6
    for channels in [(24, 24, 24, 24), (8, 8), (16, 5), (5, 7, 9), (12, 18), (16, 16), (1,), (8, 3)]:
        parts = [normal(rng, 2, c, 5, 9) for c in channels]
        net = Net()
        blocked = [net.blocked(net.feed(p), 0, 0, i % 2, 1) for i, p in enumerate(parts)]
        out = net.node("ConcatChannels", blocked, layout=c16(1, 1, 1, 1))
        yield f"ConcatChannels {channels}", net, net.plain(out), np.concatenate(parts, 1), 0.0


def formulas(rng: np.random.Generator) -> Iterator[Case]:
    for a_shape, b_shape in [
        ((3, 4, 5), (5,)),
        ((3, 1, 5), (4, 1)),
        ((), (2, 3)),
        ((0, 3), (1, 3)),
        ((300, 33), (300, 1)),
    ]:
        for dtype, number in ((np.float32, 1), (np.float64, 11)):
            a, b = normal(rng, *a_shape).astype(dtype), normal(rng, *b_shape).astype(dtype)
            net = Net()
            out = net.node("Formula", [net.feed(a), net.feed(b)], dtypes=[number], bytecode=formula(2, gated))
            reference = gated_reference(a.astype(np.float64), b.astype(np.float64))
            yield f"Formula {a_shape} {b_shape} {number}", net, out, reference, 2e-6


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def rows(rng: np.random.Generator) -> Iterator[Case]:
    shapes = [((5, 7), -1), ((5, 7), 0), ((2, 3, 40), 1), ((3, 1), 1), ((4, 513), -1), ((0, 5), -1), ((2, 5000), -1)]
    for shape, axis in shapes:
        x = normal(rng, *shape) * 5
        for op in ("Softmax", "LogSoftmax"):
            net = Net()
            reference = softmax(x, axis) if x.size else x
            reference = np.log(reference) if op == "LogSoftmax" else reference
            yield f"{op} {shape} {axis}", net, net.onnx(op, 13, [net.feed(x)], axis=axis), reference, 2e-6
    for shape, axis in [((3, 4, 384), -1), ((3, 4, 7), -1), ((2, 3, 5), 1), ((6, 17), -1)]:
        x, scale, bias = normal(rng, *shape), normal(rng, *shape[axis:]), normal(rng, *shape[axis:])
        axes = tuple(range(axis % len(shape), len(shape)))
        wide = x.astype(np.float64)
        centred = wide - wide.mean(axes, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)
        net = Net()
        out = net.onnx(
            "LayerNormalization", 17, [net.feed(x), net.feed(scale), net.feed(bias)], axis=axis, epsilon=1e-5
        )
        yield f"LayerNormalization {shape} {axis}", net, out, unit * scale + bias, 4e-6
        net = Net()
        out = net.onnx("RMSNormalization", 23, [net.feed(x), net.feed(scale)], axis=axis, epsilon=1e-5)
        reference = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-5) * scale
        yield f"RMSNormalization {shape} {axis}", net, out, reference, 4e-6
    x, scale, bias = normal(rng, 2, 6, 3, 7), normal(rng, 6), normal(rng, 6)
    mean, variance = normal(rng, 6), np.abs(normal(rng, 6)) + np.float32(0.1)
    wide, column = x.astype(np.float64), (1, 6, 1, 1)
    net = Net()
    out = net.onnx("BatchNormalization", 15, [net.feed(t) for t in (x, scale, bias, mean, variance)])
    unit = (wide - mean.reshape(column)) / np.sqrt(variance.reshape(column) + 1e-5)
    yield "BatchNormalization", net, out, unit * scale.reshape(column) + bias.reshape(column), 4e-6
    for op, version, groups in (("InstanceNormalization", 6, 6), ("GroupNormalization", 21, 3)):
        net = Net()
        attributes = {"num_groups": groups} if op[0] == "G" else {}
        out = net.onnx(op, version, [net.feed(t) for t in (x, scale, bias)], **attributes)
        reference = group_normal(x, groups, scale, bias)
        yield op, net, out, reference, 4e-6


REDUCTIONS = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
}


def reductions(rng: np.random.Generator) -> Iterator[Case]:
    shapes = [((5, 7), (1,)), ((5, 7), (0,)), ((3, 4, 5, 6), (1, 2)), ((3, 4, 5, 6), (0, 2)), ((3, 4, 5, 6), None)]
    shapes += [((2, 100, 3), (1,)), ((2, 9000), (1,)), ((3, 70, 33), (1,)), ((1,), (0,))]
    for op, (shape, axes) in product(REDUCTIONS, shapes):
        if op == "ReduceProd" and np.prod(shape) > 5000:
            continue
        x = np.abs(normal(rng, *shape)) + np.float32(0.1) if op == "ReduceLogSum" else normal(rng, *shape)
        keep = len(shape) % 2
        net = Net()
        inputs = [net.feed(x)] + ([net.constant(np.array(axes, np.int64))] if axes is not None else [])
        reference = np.asarray(REDUCTIONS[op](x.astype(np.float64), axis=axes, keepdims=bool(keep)))
        yield f"{op} {shape} {axes}", net, net.onnx(op, 18, inputs, keepdims=keep), reference, 3e-6
    for dtype, number in ((np.float64, 11), (np.int64, 7), (np.int32, 6)):
        x = (normal(rng, 3, 4, 5) * 10).astype(dtype)
        for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
            net = Net()
            inputs = [net.feed(x), net.constant(np.array([1], np.int64))]
            out = net.onnx(op, 18, inputs, dtypes=[number], keepdims=0)
            yield f"{op} {dtype.__name__}", net, out, np.asarray(REDUCTIONS[op](x, axis=1)).astype(np.float64), 1e-15


def attention_reference(q, k, v, mask, scale, causal):
    repeat = q.shape[1] // k.shape[1]
    k, v = k.repeat(repeat, 1).astype(np.float64), v.repeat(repeat, 1).astype(np.float64)
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    return softmax(scores, -1) @ v


def joined(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def attentions(rng: np.random.Generator) -> Iterator[Case]:
    rows: list[tuple] = [  # batch, heads, queries, keys, depth, depth of v, heads of k and v, mask shape, scale, causal
        (2, 3, 5, 5, 8, 8, 3, None, None, 0),
        (2, 12, 60, 60, 32, 32, 12, (2, 1, 1, 60), None, 0),
        (1, 4, 70, 33, 15, 20, 4, (70, 33), None, 0),
        (2, 4, 40, 40, 16, 16, 4, None, None, 1),
        (2, 4, 9, 40, 16, 16, 2, "bool", None, 0),
        (1, 2, 1, 7, 4, 4, 2, None, 0.3, 0),
        (2, 4, 30, 20, 16, 16, 4, (4, 1, 20), None, 1),
    ]
    for (b, h, s, n, d, dv, kv, shape, scale, causal), rank in product(rows, (3, 4)):
        q, k, v = normal(rng, b, h, s, d), normal(rng, b, kv, n, d), normal(rng, b, kv, n, dv)
        mask = None
        if shape == "bool":
            mask = rng.random((1, 1, s, n)) > 0.3
            mask[..., 0] = True
        elif shape is not None:
            mask = normal(rng, *shape)
        reference = attention_reference(q, k, v, mask, scale, causal)
        attributes: dict = {"is_causal": causal} | ({"scale": scale} if scale else {})
        if rank == 3:
            q, k, v, reference = (joined(t) for t in (q, k, v, reference))
            attributes |= {"q_num_heads": h, "kv_num_heads": kv}
        net = Net()
        inputs = [net.feed(t) for t in (q, k, v, *([mask] if mask is not None else []))]
        yield (
            f"Attention {rank} {b, h, s, n, d} {shape}{causal}",
            net,
            net.onnx("Attention", 23, inputs, **attributes),
            reference,
            2e-6,
        )
    b, s, h, d = 2, 19, 4, 15
    packed = normal(rng, b, s, 3 * h * d)
    q, k, v = (p.reshape(b, s, h, d).transpose(0, 2, 1, 3) for p in np.split(packed, 3, -1))
    layouts = {f"{t}_layout": "bshd" for t in "qkvo"}
    offsets = {"q_offset": 0, "k_offset": h * d, "v_offset": 2 * h * d}
    reference = attention_reference(q, k, v, None, None, 0)
    net = Net()
    fed = net.feed(packed)
    out = net.node("Attention", [fed] * 3, num_heads=h, head_size=d, **layouts, **offsets)
    yield "opforge Attention, q k v in one tensor", net, out, joined(reference), 2e-6
    net = Net()
    inputs = [net.feed(np.ascontiguousarray(t)) for t in (q, k.swapaxes(-1, -2), v)]
    out = net.node("Attention", inputs, num_heads=h, head_size=d, k_layout="bhds")
    yield "opforge Attention, transposed keys", net, out, reference, 2e-6


FAMILIES = (images, formulas, rows, reductions, attentions)
