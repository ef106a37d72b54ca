"""One LSTM or GRU layer (hidden 256, 64 steps) against ONNX Runtime's."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from benchmarks._case import OURS, Case, Prepared

STEPS, SIZE = 64, 256
GATES = {"LSTM": 4, "GRU": 3}


def _prepare(kind: str, batch: int, threads: int) -> Prepared:
    import numpy as np
    import onnxruntime as ort
    from onnx import helper, numpy_helper

    import opforge as of

    rng = np.random.default_rng(0)
    rows = GATES[kind] * SIZE
    shapes = {"W": (1, rows, SIZE), "R": (1, rows, SIZE), "B": (1, 2 * rows)}
    weights = {k: (rng.standard_normal(s) / np.sqrt(SIZE)).astype(np.float32) for k, s in shapes.items()}
    extra = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(kind, ["X", "W", "R", "B"], ["Y", "Y_h"], hidden_size=SIZE, **extra)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("X", 1, [STEPS, batch, SIZE])],
        [helper.make_tensor_value_info(n, 1, None) for n in ("Y", "Y_h")],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    peer = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    folder = tempfile.mkdtemp(prefix="opforge-bench-")
    of.compile(model, Path(folder) / "layer.bin")
    mine = of.Session(Path(folder) / "layer.bin", threads=threads)
    feeds = {"X": rng.standard_normal((STEPS, batch, SIZE)).astype(np.float32)}
    for name, expected in zip(("Y", "Y_h"), peer.run(None, feeds), strict=True):
        np.testing.assert_allclose(mine.run(feeds)[name], expected, atol=1e-5)
    return Prepared(runs={OURS: lambda: mine.run(feeds), "onnxruntime": lambda: peer.run(None, feeds)})


CASES = [
    Case(
        f"{kind} {STEPS} steps, hidden {SIZE}, batch {batch}" + (", 2 threads" if threads == 2 else ""),
        partial(_prepare, kind, batch),
        {"onnxruntime": 1.0},
        threads=threads,
        needs=("onnxruntime",),
    )
    for threads in (1, 2)
    for kind in GATES
    for batch in (1, 8)
]
