"""Cases of standard operators that stay plain: pools, Resize, ArgMax, TopK, CumSum."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.unit.kernels.cases_products import Case, normal
from tests.unit.kernels.graphs import DTYPES, Net
from tests.unit.kernels.reference import pool_average, pool_max


def standard(
    op: str,
    version: int,
    arrays: list[np.ndarray | None],
    tolerance: float,
    output: int = 0,
    n: int = 1,
    **attributes: Any,
) -> Case:
    """A node against onnx's reference evaluator; arrays after the first are constants."""
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(arrays)]
    given = {name: a for name, a in zip(names, arrays, strict=True) if a is not None}
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in given.items()
    ]
    outputs = [f"o{k}" for k in range(n)]
    node = helper.make_node(op, names, outputs, **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(o, 1, None) for o in outputs])
    model = helper.make_model(graph, opset_imports=[onnx.OperatorSetIdProto(domain="", version=23)])
    results = ReferenceEvaluator(model).run(None, given)
    net = Net()
    fed = [-1 if a is None else net.constant(a) if k else net.feed(a) for k, a in enumerate(arrays)]
    out = net.onnx(op, version, fed, dtypes=[DTYPES[np.asarray(r).dtype] for r in results], **attributes)
    shapes = [None if a is None else a.shape for a in arrays]
    name = f"{op} {shapes} {attributes} {output}"
    return name, net, out if n == 1 else out[output], np.asarray(results[output]).astype(np.float64), tolerance


def pools(rng: np.random.Generator) -> Iterator[Case]:
    for n in (1, 2, 3):
        x = normal(rng, 2, 3, *[9, 8, 7][:n])
        window: dict[str, Any] = {"kernel_shape": [3] * n, "strides": [2] * n, "pads": [1] * 2 * n}
        net = Net()
        yield (
            f"MaxPool {n}-D",
            net,
            net.onnx("MaxPool", 12, [net.feed(x)], **window),
            pool_max(x, [3] * n, [2] * n, [1] * 2 * n),
            0.0,
        )
        for counted, ceil in product((0, 1), (0, 1)):
            net = Net()
            out = net.onnx("AveragePool", 19, [net.feed(x)], count_include_pad=counted, ceil_mode=ceil, **window)
            reference = pool_average(x, [3] * n, [2] * n, [1] * 2 * n, counted, ceil)
            yield f"AveragePool {n}-D {counted}{ceil}", net, out, reference, 1e-6
        for op, function in (("GlobalAveragePool", np.mean), ("GlobalMaxPool", np.max)):
            net = Net()
            reference = function(x.astype(np.float64), axis=tuple(range(2, x.ndim)), keepdims=True)
            yield f"{op} {n}-D", net, net.onnx(op, 1, [net.feed(x)]), reference, 1e-6
    indexed = normal(rng, 2, 3, 7, 9)
    for output in (0, 1):
        yield standard("MaxPool", 12, [indexed], 0.0, output, 2, kernel_shape=[3, 2], strides=[2, 2])
    yield standard("MaxPool", 12, [indexed], 0.0, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER")
    for auto, s in product(("SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2, 3)):
        arrays = [normal(rng, 1, 2, 8, 9), normal(rng, 4, 2, 3, 2)]
        yield standard("Conv", 11, arrays, 2e-6, auto_pad=auto, strides=[s, s])


def order(rng: np.random.Generator) -> Iterator[Case]:
    for op, axis, keep, last in product(("ArgMax", "ArgMin"), (0, 1, -1), (0, 1), (0, 1)):
        x = np.round(normal(rng, 4, 5, 6))
        for array in (x, x.astype(np.int64)):
            yield standard(op, 13, [array], 0.0, axis=axis, keepdims=keep, select_last_index=last)
    for axis, largest, output in product((0, 1, -1), (0, 1), (0, 1)):
        k = np.array([3], np.int64)
        x = normal(rng, 4, 5, 6)
        yield standard("TopK", 11, [x, k], 0.0, output, 2, axis=axis, largest=largest)
        yield standard("TopK", 11, [np.round(x).astype(np.int32), k], 0.0, output, 2, axis=axis, largest=largest)
    for exclusive, reverse in product((0, 1), (0, 1)):
        options = {"exclusive": exclusive, "reverse": reverse}
        yield standard("CumSum", 14, [normal(rng, 4, 5, 6), np.array(1, np.int64)], 2e-6, **options)
        yield standard(
            "CumSum", 14, [np.arange(20, dtype=np.int32).reshape(4, 5), np.array(0, np.int32)], 0.0, **options
        )


COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


def resizes(rng: np.random.Generator) -> Iterator[Case]:
    # Scales whose sources do not fall between two pixels exactly: there one rounding decides which one is nearest.
    for mode, coordinates, scales in product(
        ("nearest", "linear", "cubic"), COORDINATES, ([2, 2], [0.6, 1.7], [3, 0.57])
    ):
        for rule in ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil") if mode == "nearest" else ("floor",):
            arrays = [normal(rng, 1, 2, 5, 7), None, np.array([1, 1, *scales], np.float32)]
            options = {"coordinate_transformation_mode": coordinates, "nearest_mode": rule}
            yield standard("Resize", 19, arrays, 4e-6, mode=mode, **options)
        arrays = [normal(rng, 1, 2, 5, 7), None, None, np.array([1, 2, 9, 4], np.int64)]
        yield standard("Resize", 19, arrays, 4e-6, mode=mode, coordinate_transformation_mode=coordinates)
    sizes = np.array([9, 4], np.int64)
    yield standard("Resize", 19, [normal(rng, 1, 2, 5, 7), None, None, sizes], 4e-6, mode="linear", axes=[2, 3])
    integers = np.arange(70, dtype=np.int32).reshape(1, 2, 5, 7)
    yield standard("Resize", 19, [integers, None, np.array([1, 1, 2, 3], np.float32)], 0.0, mode="nearest")


FAMILIES = (pools, order, resizes)
