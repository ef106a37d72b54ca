"""What control flow costs: small bodies of Loop and Scan, a sequence that grows, a branch, against ONNX Runtime."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._case import OURS, Case, Prepared

OUT = Path(__file__).resolve().parents[2] / "build" / "bench" / "loops"
TRIPS = 1000
HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'

_TINY = """
g (float[4] x, int64 m) => (float[4] y) {
  go = Constant <value = bool {1}> ()
  y = Loop (m, go, x) <body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] r) {
    co = Identity(ci)
    t = Mul(s, x)
    r = Add(t, x)
  }>
}
"""
_WHILE = """
g (int64 m) => (int64 y) {
  go = Constant <value = bool {1}> ()
  zero = Constant <value_int = 0> ()
  y = Loop ("", go, zero) <body = b (int64 i, bool ci, int64 s) => (bool co, int64 r) {
    one = Constant <value_int = 1> ()
    r = Add(s, one)
    co = Less(r, m)
  }>
}
"""
_APPEND = """
g (float[4] x, int64 m) => (int64 n) {
  go = Constant <value = bool {1}> ()
  e = SequenceEmpty()
  s = Loop (m, go, e) <body = b (int64 i, bool ci, seq(float[4]) s) => (bool co, seq(float[4]) r) {
    co = Identity(ci)
    r = SequenceInsert(s, x)
  }>
  n = SequenceLength(s)
}
"""
_SCAN = """
g (float[1,64] h, float[1000,64] x) => (float[1,64] y, float[K,1,64] rows) {
  y, rows = Scan <num_scan_inputs = 1, body = b (float[1,64] s, float[64] v) => (float[1,64] r, float[1,64] row) {
    a = MatMul(s, w)
    c = Add(a, v)
    r = Tanh(c)
    row = Identity(r)
  }> (h, x)
}
"""
MODELS = {"tiny body": _TINY, "while": _WHILE, "append": _APPEND, "scan of a cell": _SCAN}


def _prepare(name: str, threads: int) -> Prepared:
    import onnx
    import onnx.parser
    import onnxruntime

    import opforge as of

    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model(HEADER + MODELS[name])
    if name == "scan of a cell":
        weight = (rng.standard_normal((64, 64)) / 8).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name.replace(' ', '_')}.bin"
    of.compile(model, path)
    session = of.Session(path, threads=threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds: dict[str, Any] = {"m": np.array(TRIPS)}
    for info in session.inputs:
        if info.name != "m":
            feeds[info.name] = rng.uniform(-0.5, 0.5, [d for d in info.shape or () if isinstance(d, int)])
            feeds[info.name] = feeds[info.name].astype(np.float32)
    feeds = {info.name: feeds[info.name] for info in session.inputs}
    for got, expected in zip(session.run(feeds).values(), peer.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    return Prepared({OURS: lambda: session.run(feeds), "onnxruntime": lambda: peer.run(None, feeds)})


CASES = [
    Case(
        f"loops: {name}, {TRIPS} iterations",
        partial(_prepare, name),
        {"onnxruntime": 1.0},
        needs=("onnx", "onnxruntime"),
    )
    for name in MODELS
]
