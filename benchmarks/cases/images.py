"""Image networks at batch 1 and 8: one run, against ONNX Runtime and OpenVINO (f32)."""

from __future__ import annotations

from functools import partial

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _images

_LIMITS = {
    "resnet50": {"onnxruntime": 1.2, "openvino": 1.2},
    "squeezenet": {"onnxruntime": 1.35, "openvino": 1.35},
    "mobilenet": {"onnxruntime": 1.0, "openvino": 0.95},
}
_TWO = 0.9
"""Two threads keep so much of what one is asked for."""


def _prepare(name: str, batch: int, threads: int) -> Prepared:
    import numpy as np

    import opforge as of
    from opforge.verify import find_engine

    inputs = _images.inputs(name, batch)
    session = of.Session(_images.bin_path(name), threads=threads)
    runtime = find_engine("onnxruntime").load(_images.onnx_path(name), threads=threads)
    request = _images.openvino_model(name, batch, threads).create_infer_request()
    ours = next(iter(session.run(inputs).values()))
    theirs = next(iter(runtime.run(inputs).values()))
    third = next(iter(request.infer(inputs).values()))
    scale = float(np.abs(theirs).max())
    for other in (theirs, third):
        np.testing.assert_allclose(ours, other, rtol=2e-3, atol=2e-4 * scale)
    return Prepared(
        runs={
            OURS: lambda: session.run(inputs),
            "onnxruntime": lambda: runtime.run(inputs),
            "openvino": lambda: request.infer(inputs),
        }
    )


CASES = [
    Case(
        f"{name} batch {batch}{', 2 threads' if threads == 2 else ''}",
        partial(_prepare, name, batch),
        {peer: limit * (_TWO if threads == 2 else 1) for peer, limit in _LIMITS[name].items()},
        threads=threads,
        rounds=5,
        needs=("onnx", "onnxruntime", "openvino"),
    )
    for threads in (1, 2)
    for name in _images.NAMES
    for batch in (1, 8)
]
