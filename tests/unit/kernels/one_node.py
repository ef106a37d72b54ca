"""One ONNX node as a model: compiled, run, and compared with onnx's reference or a given result."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

import opforge as of

Array = np.ndarray[Any, Any]


def model_of(
    op: str,
    arrays: Sequence[Array | None],
    outputs: Sequence[Any] = (None,),
    *,
    domain: str = "",
    opset: int = 24,
    ir_version: int = 10,
    constants: Sequence[int] = (),
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node and its feeds.

    ``outputs`` gives the dtype of each output (None: that of the first array); ``constants`` are the positions of
    inputs that become initializers.
    """
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(arrays)]
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    first = next(iter(given.values()), np.zeros(0, np.float32)).dtype
    node = helper.make_node(op, names, [f"o{k}" for k in range(len(outputs))], domain=domain, **attributes)
    fixed = {f"i{k}" for k in constants}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
            if n not in fixed
        ],
        [
            helper.make_tensor_value_info(f"o{k}", helper.np_dtype_to_tensor_dtype(np.dtype(d or first)), None)
            for k, d in enumerate(outputs)
        ],
        [onnx.numpy_helper.from_array(given[n], n) for n in sorted(fixed)],
    )
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    return model, {n: a for n, a in given.items() if n not in fixed}


def compiled(model: onnx.ModelProto, feeds: Mapping[str, Array], **options: Any) -> list[Array]:
    """The results of the compiled model in the order of its outputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bin"
        of.compile(model, path)
        results = of.Session(path, **options).run(dict(feeds))
    return [results[o.name] for o in model.graph.output]


def run(op: str, arrays: Sequence[Array | None], outputs: Sequence[Any] = (None,), **options: Any) -> list[Array]:
    """Compile and run one node."""
    return compiled(*model_of(op, arrays, outputs, **options))


def check(
    op: str,
    arrays: Sequence[Array | None],
    outputs: Sequence[Any] = (None,),
    *,
    tolerance: float = 0.0,
    want: Sequence[Array] | None = None,
    **options: Any,
) -> None:
    """Compare one node with ``want``, or with onnx's reference; NaN equals NaN."""
    model, feeds = model_of(op, arrays, outputs, **options)
    expected = ReferenceEvaluator(model).run(None, dict(feeds)) if want is None else want
    for got, reference in zip(compiled(model, feeds), expected, strict=True):
        close(got, np.asarray(reference), tolerance)


def close(got: Array, reference: Array, tolerance: float) -> None:
    """Compare dtype, shape and elements; differences count relative to the largest finite element (at least 1)."""
    assert got.dtype == reference.dtype, f"{got.dtype}, expected {reference.dtype}"
    assert got.shape == reference.shape, f"{got.shape}, expected {reference.shape}"
    if tolerance == 0 or reference.dtype.kind not in "fV":
        np.testing.assert_array_equal(got, reference)
        return
    wide = reference.astype(np.float64)
    scale = max(1.0, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=0, atol=tolerance * scale)
