"""NonMaxSuppression and Unique: results whose size depends on data."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from opforge.errors import OpforgeError
from tests.unit.kernels.one_node import check, compiled, model_of, run

RNG = np.random.default_rng(6)


def greedy(boxes, scores, most, limit, least, centred):
    """Non-maximum suppression by its definition."""
    rows = []
    for n, k in np.ndindex(scores.shape[:2]):
        if centred:
            centre, half = boxes[n, :, :2], boxes[n, :, 2:] / 2
            low, high = centre - half, centre + half
        else:
            low = np.minimum(boxes[n, :, :2], boxes[n, :, 2:])
            high = np.maximum(boxes[n, :, :2], boxes[n, :, 2:])
        area = np.prod(high - low, axis=1)
        kept: list[int] = []
        for b in sorted(range(boxes.shape[1]), key=lambda b: (-scores[n, k, b], b)):
            if len(kept) == most or not scores[n, k, b] > least:
                continue
            common = [np.prod(np.maximum(0, np.minimum(high[b], high[j]) - np.maximum(low[b], low[j]))) for j in kept]
            if all(not c / (area[b] + area[j] - c) > limit for c, j in zip(common, kept, strict=True)):
                kept.append(b)
                rows.append((n, k, b))
    return np.array(rows, np.int64).reshape(-1, 3)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1, 40), (2, 3, 25), (0, 2, 5), (2, 0, 5), (1, 2, 0)])
def test_non_max_suppression(centred, shape):
    n, k, b = shape
    boxes = RNG.random((n, b, 4)).astype(np.float32)
    scores = np.round(RNG.random((n, k, b)), 1).astype(np.float32)  # with equal ones
    for most, limit, least in ((5, 0.3, 0.2), (100, 0.5, -np.inf), (0, 0.5, 0.0)):
        arrays = [
            boxes,
            scores,
            np.array([most], np.int64),
            np.array([limit], np.float32),
            np.array([least], np.float32),
        ]
        want = greedy(boxes.astype(np.float64), scores, most, np.float32(limit), least, centred)
        for constants in ((), (2, 3, 4)):
            check("NonMaxSuppression", arrays, [np.int64], want=[want], center_point_box=centred, constants=constants)


def test_suppression_leaves_out_nan():
    boxes = np.array([[[0, 0, 1, 1], [5, 5, 6, 6], [2, 2, 3, 3]]], np.float32)
    scores = np.array([[[np.nan, 0.5, 0.9]]], np.float32)
    check(
        "NonMaxSuppression",
        [boxes, scores, np.array(5, np.int64)],
        [np.int64],
        want=[np.array([[0, 0, 2], [0, 0, 1]])],
    )


def test_suppression_without_a_count_selects_nothing():
    got = run("NonMaxSuppression", [np.ones((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)], [np.int64])
    assert got[0].shape == (0, 3)


def test_suppression_checks_its_shapes():
    with pytest.raises(OpforgeError, match=r"f32 boxes \[N, B, 4\]"):
        run("NonMaxSuppression", [np.ones((1, 2, 4), np.float32), np.ones((2, 1, 2), np.float32)], [np.int64])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint64, np.int64, np.bool_])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("ordered", [0, 1])
def test_unique(dtype, axis, ordered):
    x = RNG.integers(0, 2 if axis is not None else 5, (6, 3, 2)).astype(dtype)
    if dtype == np.uint64 and axis is None:
        x[0, 0, 0] = 2**64 - 1
    if np.dtype(dtype).kind == "f" and axis is None:
        x = x - dtype(2)
        x[0, 0, 0] = -np.inf
    y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not ordered:
        order = np.argsort(first)
        y = np.take(y, order, axis=axis if axis is not None else 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse.reshape(-1)]
    options = {"sorted": ordered} if axis is None else {"sorted": ordered, "axis": axis}
    outputs = (None, np.int64, np.int64, np.int64)
    check("Unique", [x], outputs, want=[y, first, inverse.reshape(-1), counts], **options)


def test_unique_of_nothing_and_of_nan():
    check("Unique", [np.zeros((0,), np.float32)], (None, np.int64), want=[np.zeros(0, np.float32), np.zeros(0, int)])
    x = np.array([np.nan, -0.0, 1, np.nan, 0.0], np.float32)
    check("Unique", [x], (None, np.int64), want=[np.array([0, 1, np.nan], np.float32), np.array([1, 2, 0])])


def test_sizes_flow_on():
    """A later node reads the final size, not the largest possible one."""
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [
            helper.make_node("Unique", ["x"], ["u"]),
            helper.make_node("Shape", ["u"], ["s"]),
            helper.make_node("Add", ["u", "one"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("s", 7, [1]), helper.make_tensor_value_info("y", 1, None)],
        [helper.make_tensor("one", 1, [], [1.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    x = np.array([3, 1, 3, 2, 1], np.float32)
    want = ReferenceEvaluator(model).run(None, {"x": x})
    for got, reference in zip(compiled(model, {"x": x}), want, strict=True):
        np.testing.assert_array_equal(got, reference)


def test_model_of_gives_all_outputs():
    model, feeds = model_of("Unique", [np.zeros(3, np.int32)], (None, np.int64))
    assert [o.name for o in model.graph.output] == ["o0", "o1"] and list(feeds) == ["i0"]
