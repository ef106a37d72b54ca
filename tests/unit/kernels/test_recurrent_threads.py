"""Recurrent layers wide enough for several threads give equal bits on any number of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import opforge as of

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, SIZE = 6, 272


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("LSTM", {}),
        ("LSTM", {"direction": "bidirectional"}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 1, "direction": "reverse"}),
        ("RNN", {}),
    ],
)
def test_threads_change_no_bit(kind: str, attributes: dict[str, object], tmp_path: Path):
    rng = np.random.default_rng(3)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * SIZE
    shapes = {"W": (directions, rows, 24), "R": (directions, rows, SIZE), "B": (directions, 2 * rows)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / 16).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node(kind, ["X", "W", "R", "B", "lengths"], ["Y", "Y_h"], hidden_size=SIZE, **attributes)
    graph = helper.make_graph(
        [node],
        "layer",
        [
            helper.make_tensor_value_info("X", TensorProto.FLOAT, [STEPS, "N", 24]),
            helper.make_tensor_value_info("lengths", TensorProto.INT32, ["N"]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("Y", "Y_h")],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    of.compile(model, tmp_path / "layer.bin")
    sessions = [of.Session(tmp_path / "layer.bin", threads=n) for n in (1, 2, 3, 8)]
    for batch in (1, 5):
        lengths = np.maximum(1, STEPS - np.arange(batch, dtype=np.int32))
        feeds = {"X": rng.standard_normal((STEPS, batch, 24)).astype(np.float32), "lengths": lengths}
        for _ in range(3):
            runs = [session.run(feeds) for session in sessions]
            for name in ("Y", "Y_h"):
                assert all(run[name].tobytes() == runs[0][name].tobytes() for run in runs)
        assert of.compare(model, feeds, rtol=1e-4, atol=1e-5).passed
