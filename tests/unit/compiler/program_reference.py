"""Runs a compiled program with NumPy by the words of docs/design/runtime.md: an independent check of the compiler.

Weights are unpacked from their packed bytes by indices, halos are checked against what their readers need, and
operands against the broadcasting that the runtime allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from opforge.bin.program import Node, Program, Value
from tests.unit.compiler import bytecode_reference

F32 = np.float32


def _blocks(n: int) -> list[tuple[int, int, int]]:
    """(first, present, stored) channels of each block."""
    return [(c, min(16, n - c), 8 if n - c <= 8 else 16) for c in range(0, n, 16)]


def unpack(value: Value) -> np.ndarray:
    """Weights in their logical shape."""
    assert value.data is not None
    data, shape = np.asarray(value.data), [int(d) for d in value.shape or []]
    if not value.packing:
        assert list(data.shape) == shape, (value.name, data.shape, shape)
        return data
    flat, at = data.reshape(-1), 0
    out = np.zeros(shape, data.dtype)

    def take(*dims: int) -> np.ndarray:
        nonlocal at
        n = int(np.prod(dims))
        part = flat[at : at + n].reshape(dims)
        at += n
        return part

    if value.packing == "matmul16":
        for c, have, width in _blocks(shape[1]):
            out[:, c : c + have] = take(shape[0], width)[:, :have]
    elif value.packing == "conv16":
        o, i, kh, kw = shape
        for c, have, width in _blocks(o):
            for b in range(0, i, 16):
                part = take(kh, kw, min(16, i - b), width)
                out[c : c + have, b : b + 16] = part[..., :have].transpose(3, 2, 0, 1)
    elif value.packing == "depthwise16":
        o, _, kh, kw = shape
        for c, have, width in _blocks(o):
            out[c : c + have, 0] = take(kh, kw, width)[..., :have].transpose(2, 0, 1)
    elif value.packing == "first16":
        o, i, kh, kw = shape
        for c, have, width in _blocks(o):
            out[c : c + have] = take(i, kh, kw, width)[..., :have].transpose(3, 0, 1, 2)
    elif value.packing == "winograd16":
        o, i, _, _ = shape
        u = np.zeros((36, i, o))
        for t in range(36):
            for c, have, width in _blocks(o):
                u[t, :, c : c + have] = take(i, width)[:, :have]
        return u
    elif value.packing == "deconv16":
        i, o, kh, kw = shape
        for tap in range(kh * kw):
            for c, have, width in _blocks(o):
                out[:, c : c + have, tap // kw, tap % kw] = take(i, width)[:, :have]
    else:
        raise AssertionError(value.packing)
    assert at == flat.size, (value.name, at, flat.size)
    return out


def _windows(x: np.ndarray, kernel: Any, strides: Any, pads: Any, dilations: Any) -> np.ndarray:
    t, left, b, r = pads
    x = np.pad(x, ((0, 0), (0, 0), (t, b), (left, r)))
    span = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    v = np.lib.stride_tricks.sliding_window_view(x, span, axis=(2, 3))
    return v[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]


def _winograd(x: np.ndarray, u: np.ndarray, pads: Any) -> np.ndarray:
    bt = np.array(
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ]
    )
    at = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
    n, _, h, w = x.shape
    oh, ow = h + pads[0] + pads[2] - 2, w + pads[1] + pads[3] - 2
    th, tw = -(-oh // 4), -(-ow // 4)
    frame = np.zeros((n, x.shape[1], 4 * th + 2, 4 * tw + 2))
    frame[:, :, pads[0] : pads[0] + h, pads[1] : pads[1] + w] = x
    tiles = np.lib.stride_tricks.sliding_window_view(frame, (6, 6), axis=(2, 3))[:, :, ::4, ::4]
    v = np.einsum("ay,nctsyx,bx->abncts", bt, tiles, bt).reshape(36, n, -1, th, tw)
    m = np.einsum("kncts,kco->knots", v, u).reshape(6, 6, n, -1, th, tw)
    y = np.einsum("pa,abnots,qb->notpsq", at, m, at)
    return y.reshape(n, -1, 4 * th, 4 * tw)[:, :, :oh, :ow]


class Runner:
    """Executes one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.constants = {k: unpack(v) for k, v in enumerate(program.values) if v.data is not None}

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        p, main = self.program, self.program.graphs[0]
        env: dict[int, np.ndarray] = dict(self.constants)
        assert {p.values[i].name for i in main.inputs} == set(feeds)
        env.update({i: feeds[p.values[i].name] for i in main.inputs})
        left: dict[int, int] = {}
        for node in main.nodes:
            for i in node.inputs:
                left[i] = left.get(i, 0) + 1
        for node in main.nodes:
            inputs = [None if i < 0 else env[i] for i in node.inputs]
            rows = [None if i < 0 else p.values[i] for i in node.inputs]
            results = self.node(node, inputs, rows)
            for i, r in zip(node.outputs, results, strict=True):
                if i >= 0:
                    value = p.values[i]
                    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.dtype)
                    env[i] = np.asarray(r).astype(dtype)
                    self.check(value, env[i], node)
            for i in node.inputs:
                if i >= 0:
                    left[i] -= 1
                    if not left[i] and i not in self.constants and i not in main.outputs:
                        del env[i]
        return {p.values[i].name: env[i] for i in main.outputs}

    @staticmethod
    def check(value: Value, result: np.ndarray, node: Node) -> None:
        where = f"{node.op} -> {value.name}"
        if value.shape is not None:
            assert len(value.shape) == result.ndim, where
            for d, n in zip(value.shape, result.shape, strict=True):
                assert not isinstance(d, int) or d == n, f"{where}: {value.shape} {result.shape}"
        if value.layout.kind == "c16":
            assert result.ndim == 4, where
            assert result.dtype == F32, where

    def node(self, node: Node, x: list[np.ndarray | None], rows: list[Value | None]) -> list[np.ndarray]:
        if node.domain == "opforge":
            kind = self.program.values[node.outputs[0]].layout.kind
            return RULES[node.op](self, node, x, rows, kind)
        assert all(r is None or r.layout.kind == "plain" for r in rows), node.op
        assert self.program.values[node.outputs[0]].layout.kind == "plain"
        return standard(node, x)

    def finish(self, node: Node, y: np.ndarray, x: list[Any], rows: list[Value | None], first: int) -> list[np.ndarray]:
        """Activation, residual, epilogue."""
        a = node.attributes
        out, on_sum = self.program.values[node.outputs[0]], a.get("activation_on_sum", 0)
        y = y.astype(np.float64) if on_sum else activate(y.astype(np.float64), a)
        if node.op == "Conv" and len(x) > 3 and x[3] is not None:
            assert rows[3] is not None
            assert rows[3].layout == out.layout, "a residual lies as the output does"
            assert x[3].shape == y.shape
            y = activate(y + x[3], a) if on_sum else y + x[3]
        if "epilogue" in a:
            operands = [o for o in x[first:] if o is not None]
            if out.layout.kind == "c16":
                for o, r in zip(x[first:], rows[first:], strict=True):
                    blocked_operand(o, r, y.shape, out)
            assert np.broadcast_shapes(y.shape, *(o.shape for o in operands)) == y.shape
            y = bytecode_reference.run(a["epilogue"], [y.astype(F32), *operands])[0]
        else:
            assert len([o for o in x[first:] if o is not None]) == 0
        return [y]


def blocked_operand(o: np.ndarray, r: Value | None, shape: Any, out: Value) -> None:
    assert r is not None
    if r.layout.kind == "c16":
        pixel = o.shape[2:] == (1, 1)
        assert o.shape[1] == shape[1]
        assert pixel or o.shape == tuple(shape), (o.shape, shape)
        assert pixel or r.layout.halo == out.layout.halo, "combined tensors share one frame"
    else:
        assert o.size == 1 or o.shape == (shape[1], 1, 1), (o.shape, shape)


def activate(y: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    kind = a.get("activation", "")
    if kind == "":
        return y
    if kind == "relu":
        return np.maximum(y, 0)
    if kind == "clip":
        return np.minimum(np.maximum(y, a["lo"]), a["hi"])
    if kind == "hardswish":
        return y * np.clip(y / 6 + 0.5, 0, 1)
    if kind == "hardsigmoid":
        return np.clip(y * a["s"] + a["o"], 0, 1)
    if kind == "affine_hardswish":
        return y * np.clip(y * a["s"] + 0.5, 0, 1) + a["t"]
    raise AssertionError(kind)


def matmul(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert kind == "plain"
    assert rows[1].packing == "matmul16"
    assert x[1].shape == (node.attributes["K"], node.attributes["N"])
    y = x[0].astype(np.float64) @ x[1].astype(np.float64)
    if len(x) > 2 and x[2] is not None:
        assert x[2].shape == (node.attributes["N"],)
        y = y + x[2]
    return run.finish(node, y, x, rows, 3)


def dequantize_matmul(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    """Codes in words of 32 bits, 16 columns side by side; a scale for each group of rows."""
    a = node.attributes
    x = [*x, None, None][: max(len(x), 5)]
    assert kind == "plain"
    assert x[1].shape == (-(-a["N"] // 16), -(-a["K"] * a["bits"] // 32), 64)
    words = np.ascontiguousarray(x[1]).view("<u4")  # [block, word, 16]
    weights = np.zeros((a["K"], a["N"]), np.float32)
    per = 32 // a["bits"]
    for k in range(a["K"]):
        code = words[:, k // per] >> np.uint32(a["bits"] * (k % per)) & np.uint32((1 << a["bits"]) - 1)
        zero = a["zero"] if x[4] is None else x[4][:, k // a["group"]].astype(np.float32)
        weights[k] = ((code.astype(np.float32) - zero) * x[3][:, k // a["group"]]).reshape(-1)[: a["N"]]
    y = x[0].astype(np.float64) @ weights.astype(np.float64)
    return run.finish(node, y if x[2] is None else y + x[2], x, rows, 5)


def conv(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    a, algorithm = node.attributes, node.attributes["algorithm"]
    assert kind == "c16"
    packing = {"direct": "conv16", "first": "first16", "depthwise": "depthwise16", "winograd": "winograd16"}[algorithm]
    assert rows[1].packing == packing
    pads = a["pads"]
    if algorithm == "first":
        assert rows[0].layout.kind == "plain"
        if a.get("input_layout") == "nhwc":
            x = [x[0].transpose(0, 3, 1, 2), *x[1:]]
        assert x[0].shape[1] <= 4
    else:
        assert rows[0].layout.kind == "c16"
        halo = rows[0].layout.halo
        assert all(h >= p for h, p in zip(halo, pads, strict=True)), (halo, pads)
        if algorithm == "winograd":
            for k in (0, 1):
                n = x[0].shape[2 + k]
                outputs = n + pads[k] + pads[2 + k] - 2
                assert pads[k] + n + halo[2 + k] >= 4 * -(-outputs // 4) + 2, (halo, n)
    data = x[0].astype(np.float64)
    assert data.shape[1] == a["channels_in"]
    if algorithm == "winograd":
        y = _winograd(data, x[1], pads)
    else:
        v = _windows(data, a["kernel_shape"], a["strides"], pads, a["dilations"])
        w = ungrouped(x[1].astype(np.float64), a.get("group", 1))
        y = (
            np.einsum("nchwyx,cyx->nchw", v, w[:, 0])
            if algorithm == "depthwise"
            else np.tensordot(v, w, ([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)
        )
    if len(x) > 2 and x[2] is not None:
        y = y + x[2].reshape(-1, 1, 1)
    assert y.shape[1] == a["channels_out"]
    if "channels_total" not in a:
        return run.finish(node, y, x, rows, 4)
    assert "epilogue" not in a
    return [part(run, node, activate(y, a), x[3:], rows[3:])]


def ungrouped(w: np.ndarray, groups: int) -> np.ndarray:
    """Weights of a grouped convolution with the zeros between the groups."""
    if groups == 1:
        return w
    assert w.shape[0] % (16 * groups) == w.shape[1] % 16 == 0, "groups have whole blocks"
    out = w.shape[0] // groups
    wide = np.zeros((w.shape[0], w.shape[1] * groups, *w.shape[2:]))
    for o in range(w.shape[0]):
        first = o // out * w.shape[1]
        wide[o, first : first + w.shape[1]] = w[o]
    return wide


def part(run: Runner, node: Node, y: np.ndarray, kept: list[Any], rows: list[Value | None]) -> np.ndarray:
    """Own channels among those of the value that holds the others; unwritten ones are NaN."""
    a, out = node.attributes, run.program.values[node.outputs[0]]
    first, total = a["channel_offset"], a["channels_total"]
    assert first % 16 == 0
    assert y.shape[1] % 16 == 0 or first + y.shape[1] == total
    whole = np.full((y.shape[0], total, *y.shape[2:]), np.nan)
    if kept and kept[0] is not None:
        assert rows[0] is not None
        assert rows[0].layout == out.layout, "one buffer"
        whole = kept[0].astype(np.float64)
    whole[:, first : first + y.shape[1]] = y
    return whole


def conv_transpose(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert rows[0].layout.kind == "c16"
    assert kind == "c16" or node.attributes["channels_out"] <= 4
    n, _, h, w = x[0].shape
    y = np.einsum("nchw,coyx->nohywx", x[0].astype(np.float64), x[1].astype(np.float64)).reshape(n, -1, 2 * h, 2 * w)
    if len(x) > 2 and x[2] is not None:
        y = y + x[2].reshape(-1, 1, 1)
    return run.finish(node, y, x, rows, 3)


def pool(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert kind == rows[0].layout.kind == "c16"
    a = node.attributes
    feeds = {k: a[k] for k in ("kernel_shape", "strides", "dilations", "pads", "ceil_mode")}
    if a["mode"] == "average":
        feeds["count_include_pad"] = a["count_include_pad"]
    name = "MaxPool" if a["mode"] == "max" else "AveragePool"
    return standard(Node("", name, 22, [0], [1], feeds), [x[0]])


def global_average(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert kind == rows[0].layout.kind == "c16"
    return [x[0].astype(np.float64).mean((2, 3), keepdims=True)]


def resize(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert kind == rows[0].layout.kind == "c16"
    y = x[0].repeat(node.attributes["scales_h"], 2).repeat(node.attributes["scales_w"], 3)
    if "channels_total" not in node.attributes:
        return [y]
    assert y.shape[1] == node.attributes["channels_in"]
    return [part(run, node, y, x[1:], rows[1:])]


def depth_to_space(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert kind == rows[0].layout.kind == "c16"
    b, (n, c, h, w) = node.attributes["blocksize"], x[0].shape
    y = x[0].reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    return [y.reshape(n, c // b**2, h * b, w * b)]


def shuffle_channels(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert kind == rows[0].layout.kind == "c16"
    n, c, h, w = x[0].shape
    g = node.attributes["groups"]
    return [x[0].reshape(n, g, c // g, h, w).swapaxes(1, 2).reshape(n, c, h, w)]


def concat(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert kind == "c16"
    assert all(r.layout.kind == "c16" for r in rows)
    return [np.concatenate(x, 1)]


def formula(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    ys = bytecode_reference.run(node.attributes["bytecode"], x)
    for o, r in zip(x, rows, strict=True):
        if kind == "c16":
            blocked_operand(o, r, ys[0].shape, run.program.values[node.outputs[0]])
        else:
            assert r.layout.kind == "plain"
    return ys


def reorder(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    if node.attributes.get("plain") != "nhwc":
        return [x[0]]
    assert {kind, rows[0].layout.kind} == {"plain", "c16"}
    return [x[0].transpose(0, 2, 3, 1) if kind == "plain" else x[0].transpose(0, 3, 1, 2)]


def attention(run: Runner, node: Node, x: list[Any], rows: list[Any], kind: str) -> list[np.ndarray]:
    assert all(r is None or r.layout.kind == "plain" for r in rows)
    a = node.attributes

    def heads(t: np.ndarray, layout: str, n: int, depth: int, offset: int) -> np.ndarray:
        if t.ndim == 3:
            assert layout == "bshd"
            t = t[..., offset : offset + n * depth].reshape(*t.shape[:2], n, depth)
        assert offset == 0 or layout == "bshd"
        t = {"bshd": t.transpose(0, 2, 1, 3), "bhsd": t, "bhds": t.swapaxes(-1, -2)}[layout].astype(np.float64)
        assert t.shape[1] == n
        assert t.shape[3] == depth
        return t.repeat(a["num_heads"] // n, 1)

    q = heads(x[0], a["q_layout"], a["num_heads"], a["head_size"], a.get("q_offset", 0))
    k = heads(x[1], a["k_layout"], a["kv_num_heads"], a["head_size"], a.get("k_offset", 0))
    v = heads(x[2], a["v_layout"], a["kv_num_heads"], a["head_size_v"], a.get("v_offset", 0))
    group = a["num_heads"] // a["kv_num_heads"]
    past = 0
    if len(x) > 4 and x[4] is not None:
        past = x[4].shape[2]
        k, v = (np.concatenate([p.repeat(group, 1), t], 2) for p, t in ((x[4], k), (x[5], v)))
    s = q @ k.swapaxes(-1, -2) * (a["scale"] or 1 / np.sqrt(a["head_size"]))
    shown = [s] * 4
    if a.get("softcap"):
        s = a["softcap"] * np.tanh(s / a["softcap"])
    shown[1] = s
    if len(x) > 3 and x[3] is not None:
        bias = np.where(x[3], 0, -np.inf) if x[3].dtype == bool else x[3].astype(np.float64)
        short = s.shape[-1] - bias.shape[-1]
        s = s + np.pad(bias, [(0, 0)] * (bias.ndim - 1) + [(0, short)], constant_values=-np.inf)
    lengths = x[6][:, None, None, None] if len(x) > 6 and x[6] is not None else np.full((1, 1, 1, 1), s.shape[-1])
    at = np.arange(s.shape[-2])[:, None] + (past if len(x) < 7 or x[6] is None else lengths - s.shape[-2])
    key = np.arange(s.shape[-1])
    left, right = a.get("left_window_size", -1), 0 if a["causal"] else a.get("right_window_size", -1)
    seen = (key < lengths) & ((left < 0) | (key >= at - left)) & ((right < 0) | (key <= at + right))
    s = np.where(seen, s, -np.inf)
    shown[2] = s
    top = s.max(-1, keepdims=True, initial=-np.inf)
    e = np.where(np.isneginf(top), 0, np.exp(s - np.where(np.isneginf(top), 0, top)))
    p = e / np.maximum(e.sum(-1, keepdims=True), np.isneginf(top))
    if a.get("nan_rows"):
        p = np.where(np.isneginf(top), np.nan, p)
    shown[3] = p
    y = p @ v
    if a["o_layout"] == "bshd":
        y = y.transpose(0, 2, 1, 3)
        y = y.reshape(*y.shape[:2], -1) if a["o_rank"] == 3 else y
    results = [y, k[:, ::group], v[:, ::group], shown[a.get("qk_matmul_output_mode", 0)]]
    return results[: len(node.outputs)]


RULES: dict[str, Callable[..., list[np.ndarray]]] = {
    "Attention": attention,
    "MatMul": matmul,
    "DequantizeMatMul": dequantize_matmul,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Pool": pool,
    "GlobalAveragePool": global_average,
    "Resize": resize,
    "ConcatChannels": concat,
    "DepthToSpace": depth_to_space,
    "ShuffleChannels": shuffle_channels,
    "Formula": formula,
    "Reorder": reorder,
}

_cache: dict[Any, ReferenceEvaluator] = {}


def standard(node: Node, x: list[Any]) -> list[np.ndarray]:
    """A node of ONNX by onnx's own reference."""
    names = ["" if v is None else f"x{k}" for k, v in enumerate(x)]
    outputs = [f"y{k}" if o >= 0 else "" for k, o in enumerate(node.outputs)]
    key = (node.op, node.since_version, repr(sorted(node.attributes.items())), tuple(names), tuple(outputs))
    if key not in _cache:
        proto = onnx.helper.make_node(node.op, names, outputs, **node.attributes)
        graph = onnx.helper.make_graph(
            [proto],
            "one",
            [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in names if n],
            [onnx.helper.make_value_info(n, onnx.TypeProto()) for n in outputs if n],
        )
        imports = [onnx.helper.make_opsetid("", max(node.since_version, 20))]
        _cache[key] = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports))
    feeds = {n: v for n, v in zip(names, x, strict=True) if n}
    found = iter(_cache[key].run(None, feeds))
    return [next(found) if o else np.zeros(0) for o in outputs]
