"""The Attention operator against ONNX Runtime: a decoder's step over a cache, and a causal prompt."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from benchmarks._case import OURS, Case, Prepared

HEADS, KV_HEADS, SIZE = 32, 8, 64


def _prepare(queries: int, past: int, threads: int) -> Prepared:
    import numpy as np
    import onnxruntime as ort
    from onnx import helper

    import opforge as of

    rng = np.random.default_rng(0)
    shapes = {
        "Q": (1, HEADS, queries, SIZE),
        "K": (1, KV_HEADS, queries, SIZE),
        "V": (1, KV_HEADS, queries, SIZE),
        "past_K": (1, KV_HEADS, past, SIZE),
        "past_V": (1, KV_HEADS, past, SIZE),
    }
    if not past:
        del shapes["past_K"], shapes["past_V"]
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    outputs = ["Y", "present_K", "present_V"] if past else ["Y"]
    inputs = ["Q", "K", "V", *(["", "past_K", "past_V"] if past else [])]
    graph = helper.make_graph(
        [helper.make_node("Attention", inputs, outputs, is_causal=1)],
        "attention",
        [helper.make_tensor_value_info(n, 1, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, 1, None) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    peer = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    folder = tempfile.mkdtemp(prefix="opforge-bench-")
    of.compile(model, Path(folder) / "attention.bin")
    mine = of.Session(Path(folder) / "attention.bin", threads=threads)
    np.testing.assert_allclose(mine.run(feeds)["Y"], peer.run(["Y"], feeds)[0], atol=2e-5)
    return Prepared(runs={OURS: lambda: mine.run(feeds), "onnxruntime": lambda: peer.run(None, feeds)})


CASES = [
    Case(
        f"attention {HEADS}/{KV_HEADS} heads, {queries} on {past}" + (", 2 threads" if threads == 2 else ""),
        partial(_prepare, queries, past),
        {"onnxruntime": 1.0},
        threads=threads,
        needs=("onnxruntime",),
    )
    for threads in (1, 2)
    for queries, past in ((1, 1024), (256, 0))
]
