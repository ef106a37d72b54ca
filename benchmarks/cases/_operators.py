"""The operators of the bench: one node each, at shapes that models have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Given:
    """One input: an array that is fed, or (constant) an initializer."""

    array: np.ndarray[Any, Any]
    constant: bool = False


@dataclass(frozen=True)
class Row:
    """One operator.

    Attributes:
        name: unique; the operator's name comes first.
        inputs: None = absent.
        compare: False where the result is random, or lies halfway between two pixels.
        tolerance: absolute, of results that are sums.
    """

    name: str
    inputs: tuple[Given | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21
    compare: bool = True
    tolerance: float = 1e-3

    def model(self) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
        """Return a model of one node and its inputs."""
        import onnx
        from onnx import helper, numpy_helper

        names = [f"x{k}" if given else "" for k, given in enumerate(self.inputs)]
        outputs = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.name.split()[0], names, outputs, **self.attributes)
        fed = {n: g.array for n, g in zip(names, self.inputs, strict=True) if g and not g.constant}
        held = [
            numpy_helper.from_array(g.array, n) for n, g in zip(names, self.inputs, strict=True) if g and g.constant
        ]
        ends = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in fed.items()
        ]
        graph = helper.make_graph([node], "g", ends, [onnx.ValueInfoProto(name=n) for n in outputs], held)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made, strict_mode=True), fed


_RNG = np.random.default_rng(0)


def _f(*shape: int, dtype: type = np.float32) -> Given:
    """Normal numbers, fed."""
    return Given(_RNG.standard_normal(shape).astype(dtype))


def _i(low: int, high: int, *shape: int, dtype: type = np.int64) -> Given:
    """Integers, fed."""
    return Given(_RNG.integers(low, high, shape).astype(dtype))


def _w(*shape: int, dtype: type = np.float32) -> Given:
    """Weights: normal numbers, constant."""
    return Given((_RNG.standard_normal(shape) * 0.1).astype(dtype), constant=True)


def _k(values: Any, dtype: type = np.int64) -> Given:  # noqa: ANN401 - whatever NumPy takes
    """A constant."""
    return Given(np.asarray(values, dtype), constant=True)


def _scatter_points(n: int, limit: int) -> Given:
    return Given(_RNG.permutation(limit)[:n].reshape(n, 1).astype(np.int64))


def _boxes(n: int) -> Given:
    corner = _RNG.uniform(0, 200, (1, n, 2))
    return Given(np.concatenate([corner, corner + _RNG.uniform(5, 60, (1, n, 2))], -1).astype(np.float32))


def _rois(n: int) -> Given:
    corner = _RNG.uniform(0, 30, (n, 2))
    return Given(np.concatenate([corner, corner + _RNG.uniform(2, 20, (n, 2))], -1).astype(np.float32))


def _grid(*shape: int) -> Given:
    return Given(_RNG.uniform(-1, 1, shape).astype(np.float32))


_IMAGE = (1, 64, 56, 56)
_TOKENS = (1, 128, 768)

FAMILIES: dict[str, list[Row]] = {
    "moving": [
        Row("Gather rows", (_f(30000, 384), _i(0, 30000, 1, 128))),
        Row("Gather columns", (_f(256, 512), _i(0, 512, 200)), {"axis": 1}),
        Row("GatherElements", (_f(256, 512), _i(0, 512, 256, 512)), {"axis": 1}),
        Row("GatherND", (_f(64, 64, 64), _i(0, 64, 1000, 2))),
        Row("ScatterND rows", (_f(1024, 256), _scatter_points(100, 1024), _f(100, 256))),
        Row("ScatterND add", (_f(1024, 256), _i(0, 1024, 100, 1), _f(100, 256)), {"reduction": "add"}),
        Row("ScatterElements", (_f(256, 512), _i(0, 512, 256, 128), _f(256, 128)), {"axis": 1, "reduction": "add"}),
        Row("Concat channels", (_f(1, 32, 56, 56), _f(1, 32, 56, 56), _f(1, 64, 56, 56)), {"axis": 1}),
        Row("Concat last", (_f(1024, 64), _f(1024, 32), _f(1024, 1)), {"axis": 1}),
        Row("Slice rows", (_f(512, 512), _k([100]), _k([400]), _k([0]))),
        Row("Slice last", (_f(512, 512), _k([64]), _k([320]), _k([1]))),
        Row("Slice step 2", (_f(1, 64, 64, 64), _k([0, 0]), _k([64, 64]), _k([2, 3]), _k([2, 2]))),
        Row("Slice backwards", (_f(512, 512), _k([-1]), _k([-1000]), _k([1]), _k([-1]))),
        Row("Split last", (_f(512, 768),), {"axis": 1, "num_outputs": 3}, outputs=3),
        Row("Transpose matrix", (_f(512, 512),), {"perm": [1, 0]}),
        Row("Transpose heads", (_f(1, 128, 12, 64),), {"perm": [0, 2, 1, 3]}),
        Row("Transpose heads swapped", (_f(1, 128, 12, 64),), {"perm": [0, 2, 3, 1]}),
        Row("Transpose to channels last", (_f(*_IMAGE),), {"perm": [0, 2, 3, 1]}),
        Row("Transpose reversed", (_f(32, 64, 96),), {"perm": [2, 1, 0]}),
        Row("Transpose i64", (_i(0, 9, 256, 512),), {"perm": [1, 0]}),
        Row("Transpose u8", (_i(0, 99, 224, 224, 3, dtype=np.uint8),), {"perm": [2, 0, 1]}),
        Row("Expand rows", (_f(512, 1), _k([512, 512]))),
        Row("Expand planes", (_f(1, 56, 56), _k([32, 56, 56]))),
        Row("Tile", (_f(64, 64), _k([4, 4]))),
        Row("Pad constant", (_f(*_IMAGE), _k([0, 0, 1, 1, 0, 0, 1, 1]))),
        Row("Pad reflect", (_f(*_IMAGE), _k([0, 0, 3, 3, 0, 0, 3, 3])), {"mode": "reflect"}),
        Row("Pad edge", (_f(*_IMAGE), _k([0, 0, 3, 3, 0, 0, 3, 3])), {"mode": "edge"}),
        Row("DepthToSpace", (_f(1, 64, 56, 56),), {"blocksize": 2}),
        Row("SpaceToDepth", (_f(1, 16, 112, 112),), {"blocksize": 2}),
        Row("OneHot", (_i(0, 512, 256), _k(512), _k([0, 1], np.float32))),
        Row("Trilu", (_f(512, 512),), {"upper": 0}),
        Row("ReverseSequence", (_f(64, 32, 128), _i(1, 64, 32)), {"batch_axis": 1, "time_axis": 0}),
        Row("Compress", (_f(512, 512), _i(0, 2, 512, dtype=np.bool_)), {"axis": 0}),
        Row("Where", (_i(0, 2, 512, 512, dtype=np.bool_), _f(512, 512), _f(512, 512))),
        Row("Where scalar", (_i(0, 2, 1, 1, 128, 128, dtype=np.bool_), _f(1, 12, 128, 128), _k(-1e9, np.float32))),
    ],
    "elementwise": [
        Row("Add f32", (_f(512, 512), _f(512, 512))),
        Row("Mul broadcast", (_f(1, 64, 56, 56), _f(1, 64, 1, 1))),
        Row("Sub columns", (_f(512, 512), _f(512, 1))),
        Row("Less f32", (_f(512, 512), _f(512, 512))),
        Row("Add i64", (_i(0, 99, 512, 512), _i(0, 99, 512, 512))),
        Row("Add i64 row", (_i(0, 99, 512, 512), _i(0, 99, 512))),
        Row("Mul i64 columns", (_i(0, 99, 512, 512), _i(0, 99, 512, 1))),
        Row("Sub i64 scalar", (_i(0, 99, 512, 512), _k(3))),
        Row("Add i32 row", (_i(0, 99, 512, 512, dtype=np.int32), _i(0, 99, 512, dtype=np.int32))),
        Row("Div i64", (_i(0, 999, 512, 512), _k(7))),
        Row("Mod i64", (_i(0, 999, 512, 512), _k(7))),
        Row("Equal i64 scalar", (_i(0, 9, 512, 512), _k(3))),
        Row("Equal i64 outer", (_i(0, 9, 512, 1), _i(0, 9, 1, 512))),
        Row("Greater i32 row", (_i(0, 9, 512, 512, dtype=np.int32), _i(0, 9, 512, dtype=np.int32))),
        Row("Max i64", (_i(0, 99, 512, 512), _i(0, 99, 512, 512))),
        Row("And", (_i(0, 2, 512, 512, dtype=np.bool_), _i(0, 2, 512, 512, dtype=np.bool_))),
        Row("Not", (_i(0, 2, 512, 512, dtype=np.bool_),)),
        Row("Add f64", (_f(512, 512, dtype=np.float64), _f(512, 512, dtype=np.float64))),
        Row("Mul f64 columns", (_f(512, 512, dtype=np.float64), _f(512, 1, dtype=np.float64))),
        Row("Exp f64", (_f(256, 256, dtype=np.float64),)),
        Row("Tanh f64", (_f(256, 256, dtype=np.float64),)),
        Row("Cast f32 to i64", (_f(512, 512),), {"to": 7}),
        Row("Cast i64 to f32", (_i(0, 99, 512, 512),), {"to": 1}),
        Row("Cast f32 to f16", (_f(512, 512),), {"to": 10}),
        Row("Cast f16 to f32", (_f(512, 512, dtype=np.float16),), {"to": 1}),
        Row("Cast f32 to bool", (_f(512, 512),), {"to": 9}),
        Row("Cast bool to f32", (_i(0, 2, 512, 512, dtype=np.bool_),), {"to": 1}),
        Row("Cast i64 to i32", (_i(0, 99, 512, 512),), {"to": 6}),
        Row("Cast u8 to f32", (_i(0, 99, 512, 512, dtype=np.uint8),), {"to": 1}),
        Row("Cast f32 to u8", (Given(np.abs(_f(512, 512).array)),), {"to": 2}),
        Row("Cast f64 to f32", (_f(512, 512, dtype=np.float64),), {"to": 1}),
        Row("Clip i64", (_i(0, 99, 512, 512), _k(10), _k(50))),
        Row("Abs i64", (_i(-99, 99, 512, 512),)),
        Row("Erf", (_f(512, 512),)),
        Row("PRelu", (_f(*_IMAGE), _w(64, 1, 1))),
        Row("Range", (_k(0), _i(100000, 100001), _k(1))),
        Row("RandomNormalLike", (_f(512, 512),), {"seed": 1.0}, compare=False),
        Row("RandomUniformLike", (_f(512, 512),), {"seed": 1.0}, compare=False),
    ],
    "reductions": [
        Row("ReduceSum last", (_f(512, 512), _k([1]))),
        Row("ReduceSum first", (_f(512, 512), _k([0]))),
        Row("ReduceSum middle", (_f(64, 64, 64), _k([1]))),
        Row("ReduceSum ends", (_f(64, 64, 64), _k([0, 2]))),
        Row("ReduceSum all", (_f(512, 512), _k([0, 1]))),
        Row("ReduceMean image", (_f(*_IMAGE), _k([2, 3]))),
        Row("ReduceMean channels", (_f(*_IMAGE), _k([1]))),
        Row("ReduceMax last", (_f(512, 512), _k([1]))),
        Row("ReduceMax first", (_f(512, 512), _k([0]))),
        Row("ReduceProd last", (_f(512, 512), _k([1]))),
        Row("ReduceL2 last", (_f(512, 512), _k([1]))),
        Row("ReduceLogSumExp last", (_f(512, 512), _k([1]))),
        Row("ReduceSum i64 last", (_i(0, 9, 512, 512), _k([1]))),
        Row("ReduceSum i64 first", (_i(0, 9, 512, 512), _k([0]))),
        Row("ReduceMax i64 last", (_i(0, 9, 512, 512), _k([1]))),
        Row("ReduceSum f64 last", (_f(512, 512, dtype=np.float64), _k([1]))),
        Row("ReduceMean f64 first", (_f(512, 512, dtype=np.float64), _k([0]))),
        Row("ArgMax last", (_f(512, 512),), {"axis": 1}),
        Row("ArgMax first", (_f(512, 512),), {"axis": 0}),
        Row("ArgMax channels", (_f(1, 21, 64, 64),), {"axis": 1}),
        Row("CumSum last", (_f(512, 512), _k(1))),
        Row("CumSum first", (_f(512, 512), _k(0))),
        Row("TopK 5 of 1000", (_f(16, 1000), _k([5])), outputs=2),
        Row("TopK 100 of 10000", (_f(1, 10000), _k([100])), outputs=2),
        Row("TopK 1000 of 8400", (_f(1, 8400), _k([1000])), outputs=2),
        Row("TopK sort 1000", (_f(16, 1000), _k([1000])), outputs=2),
        Row("TopK first axis", (_f(100, 256), _k([5])), {"axis": 0}, outputs=2),
        Row("TopK i64", (_i(0, 10**6, 1, 10000), _k([100])), outputs=2),
        Row("NonZero", (_i(0, 2, 256, 256, dtype=np.bool_),)),
        Row("NonZero f32", (Given(np.maximum(_f(128, 128).array, 0)),)),
        Row("Unique", (_i(0, 500, 10000),), {"sorted": 1}, outputs=4),
        Row("Unique f32", (_f(10000),), {"sorted": 1}, outputs=1),
        Row("Softmax last", (_f(12, 128, 128),)),
        Row("Softmax first", (_f(512, 512),), {"axis": 0}),
        Row("Softmax channels", (_f(1, 21, 64, 64),), {"axis": 1}),
        Row("LogSoftmax", (_f(16, 1000),)),
        Row("Softmax f64", (_f(256, 256, dtype=np.float64),)),
        Row("Softmax f16", (_f(256, 256, dtype=np.float16),)),
        Row("Hardmax", (_f(256, 512),)),
        Row(
            "NonMaxSuppression",
            (
                _boxes(1000),
                Given(_RNG.random((1, 1, 1000), np.float32)),
                _k([100]),
                _k([0.5], np.float32),
                _k([0.1], np.float32),
            ),
        ),
    ],
    "normalisation": [
        Row("LayerNormalization", (_f(*_TOKENS), _w(768), _w(768))),
        Row("LayerNormalization f64", (_f(1, 128, 256, dtype=np.float64), _w(256, dtype=np.float64))),
        Row("InstanceNormalization", (_f(*_IMAGE), _w(64), _w(64))),
        Row("GroupNormalization", (_f(*_IMAGE), _w(64), _w(64)), {"num_groups": 8}),
        Row("BatchNormalization", (_f(*_IMAGE), _w(64), _w(64), _w(64), Given(np.ones(64, np.float32), constant=True))),
        Row("LRN", (_f(*_IMAGE),), {"size": 5}),
        Row("LpNormalization", (_f(512, 512),), {"axis": 1, "p": 2}),
        Row("MeanVarianceNormalization", (_f(*_IMAGE),), {"axes": [0, 2, 3]}),
    ],
    "pooling": [
        Row("MaxPool 2x2", (_f(*_IMAGE),), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Row("MaxPool 3x3 padded", (_f(*_IMAGE),), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
        Row("MaxPool ceil", (_f(*_IMAGE),), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        Row("MaxPool dilated", (_f(*_IMAGE),), {"kernel_shape": [3, 3], "dilations": [2, 2]}),
        Row("MaxPool indices", (_f(*_IMAGE),), {"kernel_shape": [2, 2], "strides": [2, 2]}, outputs=2),
        Row("MaxPool 1-D", (_f(1, 64, 2048),), {"kernel_shape": [3], "strides": [2]}),
        Row("MaxPool 3-D", (_f(1, 16, 16, 32, 32),), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
        Row("AveragePool 2x2", (_f(*_IMAGE),), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Row("AveragePool 3x3", (_f(*_IMAGE),), {"kernel_shape": [3, 3], "pads": [1] * 4}),
        Row("AveragePool 1-D", (_f(1, 64, 2048),), {"kernel_shape": [4], "strides": [4]}),
        Row("AveragePool 3-D", (_f(1, 16, 16, 32, 32),), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
        Row("MaxPool f64", (_f(1, 16, 56, 56, dtype=np.float64),), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Row("LpPool", (_f(1, 16, 56, 56),), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        Row("GlobalAveragePool", (_f(*_IMAGE),)),
        Row("GlobalMaxPool", (_f(*_IMAGE),)),
        Row("GlobalAveragePool 3-D", (_f(1, 64, 8, 16, 16),)),
    ],
    "sampling": [
        Row("Resize nearest x2", (_f(1, 32, 56, 56), None, _k([1, 1, 2, 2], np.float32)), {"mode": "nearest"}),
        Row(
            "Resize nearest asymmetric",
            (_f(1, 32, 56, 56), None, _k([1, 1, 2, 2], np.float32)),
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        ),
        Row(
            "Resize nearest odd",
            (_f(1, 32, 56, 56), None, None, _k([1, 32, 75, 91])),
            {"mode": "nearest"},
            compare=False,
        ),
        Row("Resize nearest down", (_f(1, 32, 112, 112), None, _k([1, 1, 0.5, 0.5], np.float32)), {"mode": "nearest"}),
        Row("Resize linear x2", (_f(1, 32, 56, 56), None, _k([1, 1, 2, 2], np.float32)), {"mode": "linear"}),
        Row(
            "Resize linear corners",
            (_f(1, 32, 32, 32), None, None, _k([1, 32, 128, 128])),
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        ),
        Row("Resize linear down", (_f(1, 3, 480, 640), None, None, _k([1, 3, 224, 224])), {"mode": "linear"}),
        Row(
            "Resize linear antialias",
            (_f(1, 3, 240, 320), None, None, _k([1, 3, 112, 112])),
            {"mode": "linear", "antialias": 1},
        ),
        Row("Resize cubic x2", (_f(1, 8, 56, 56), None, _k([1, 1, 2, 2], np.float32)), {"mode": "cubic"}),
        Row(
            "Resize u8",
            (_i(0, 255, 1, 3, 240, 320, dtype=np.uint8), None, None, _k([1, 3, 120, 160])),
            {"mode": "nearest"},
        ),
        Row("Resize linear 3-D", (_f(1, 8, 8, 16, 16), None, _k([1, 1, 2, 2, 2], np.float32)), {"mode": "linear"}),
        Row("GridSample linear", (_f(1, 32, 56, 56), _grid(1, 56, 56, 2))),
        Row("GridSample nearest", (_f(1, 32, 56, 56), _grid(1, 56, 56, 2)), {"mode": "nearest"}),
        Row("GridSample cubic", (_f(1, 8, 56, 56), _grid(1, 56, 56, 2)), {"mode": "cubic"}),
        Row(
            "RoiAlign",
            (_f(1, 32, 50, 50), _rois(50), _i(0, 1, 50)),
            {"output_height": 7, "output_width": 7, "sampling_ratio": 2},
        ),
        Row(
            "MaxRoiPool",
            (_f(1, 32, 50, 50), Given(np.hstack([np.zeros((50, 1), np.float32), _rois(50).array]))),
            {"pooled_shape": [7, 7]},
        ),
        Row("DFT", (_f(1, 256, 256, 1), None, _k(1)), opset=20),
        Row("STFT", (_f(1, 16000, 1), _k(160), Given(np.hanning(400).astype(np.float32), constant=True), _k(400))),
        Row("AffineGrid", (_f(1, 2, 3), _k([1, 3, 128, 128])), opset=20),
    ],
    "convolutions": [
        Row("Conv 3x3", (_f(*_IMAGE), _w(64, 64, 3, 3), _w(64)), {"pads": [1] * 4}),
        Row("Conv 1x1", (_f(*_IMAGE), _w(128, 64, 1, 1))),
        Row("Conv 5x5 stride 2", (_f(*_IMAGE), _w(64, 64, 5, 5)), {"pads": [2] * 4, "strides": [2, 2]}),
        Row("Conv dilated", (_f(*_IMAGE), _w(64, 64, 3, 3)), {"pads": [2] * 4, "dilations": [2, 2]}),
        Row("Conv depthwise", (_f(*_IMAGE), _w(64, 1, 3, 3)), {"pads": [1] * 4, "group": 64}),
        Row("Conv 4 groups", (_f(*_IMAGE), _w(64, 16, 3, 3)), {"pads": [1] * 4, "group": 4}),
        Row("Conv 32 groups", (_f(*_IMAGE), _w(128, 2, 3, 3)), {"pads": [1] * 4, "group": 32}),
        Row("Conv RGB", (_f(1, 3, 224, 224), _w(32, 3, 3, 3)), {"pads": [1] * 4, "strides": [2, 2]}),
        Row("Conv 1-D", (_f(1, 64, 1000), _w(64, 64, 3)), {"pads": [1, 1]}),
        Row("Conv 1-D audio", (_f(1, 1, 16000), _w(64, 1, 10)), {"strides": [5]}),
        Row("Conv 1-D depthwise", (_f(1, 256, 500), _w(256, 1, 7)), {"pads": [3, 3], "group": 256}),
        Row("Conv 3-D", (_f(1, 16, 8, 28, 28), _w(32, 16, 3, 3, 3)), {"pads": [1] * 6}),
        Row("Conv 3-D stem", (_f(1, 3, 8, 56, 56), _w(32, 3, 3, 3, 3)), {"pads": [1] * 6, "strides": [1, 2, 2]}),
        Row("Conv 3-D depthwise", (_f(1, 32, 8, 28, 28), _w(32, 1, 3, 3, 3)), {"pads": [1] * 6, "group": 32}),
        Row("Conv fed weights", (_f(1, 32, 28, 28), _f(32, 32, 3, 3)), {"pads": [1] * 4}),
        Row("ConvTranspose 2x2", (_f(1, 64, 28, 28), _w(64, 32, 2, 2)), {"strides": [2, 2]}),
        Row("ConvTranspose 4x4 pads", (_f(1, 64, 28, 28), _w(64, 32, 4, 4)), {"strides": [2, 2], "pads": [1] * 4}),
        Row(
            "ConvTranspose 3x3 output_padding",
            (_f(1, 64, 28, 28), _w(64, 32, 3, 3)),
            {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]},
        ),
        Row("ConvTranspose 3x3", (_f(1, 64, 28, 28), _w(64, 32, 3, 3)), {"pads": [1] * 4}),
        Row(
            "ConvTranspose groups",
            (_f(1, 64, 28, 28), _w(64, 16, 4, 4)),
            {"strides": [2, 2], "pads": [1] * 4, "group": 4},
        ),
        Row("ConvTranspose 1-D", (_f(1, 128, 200), _w(128, 64, 16)), {"strides": [8], "pads": [4, 4]}),
        Row("ConvTranspose 3-D", (_f(1, 16, 8, 14, 14), _w(16, 16, 2, 2, 2)), {"strides": [2, 2, 2]}),
        Row(
            "ConvInteger",
            (
                _i(0, 255, 1, 32, 28, 28, dtype=np.uint8),
                Given(_RNG.integers(0, 255, (32, 32, 3, 3)).astype(np.uint8), constant=True),
            ),
            {"pads": [1] * 4},
        ),
        Row(
            "ConvInteger i8",
            (
                _i(0, 255, 1, 32, 28, 28, dtype=np.uint8),
                Given(_RNG.integers(-127, 128, (32, 32, 3, 3)).astype(np.int8), constant=True),
            ),
            {"pads": [1] * 4},
        ),
    ],
    "products": [
        Row("MatMul 128x768x768", (_f(128, 768), _w(768, 768))),
        Row("MatMul row", (_f(1, 768), _w(768, 3072))),
        Row("MatMul odd", (_f(33, 77), _w(77, 53))),
        Row("MatMul column", (_f(512, 512), _f(512, 1))),
        Row("MatMul vector", (_f(512, 512), _f(512))),
        Row("MatMul fed", (_f(128, 256), _f(256, 256))),
        Row("MatMul row fed", (_f(1, 512), _f(512, 1024))),
        Row("MatMul small batches", (_f(64, 8, 16), _f(64, 16, 8))),
        Row("MatMul tiny batches", (_f(2000, 3, 3), _f(2000, 3, 3))),
        Row("MatMul heads", (_f(1, 12, 128, 64), _f(1, 12, 64, 128))),
        Row("MatMul broadcast", (_f(8, 1, 32, 64), _f(1, 12, 64, 32))),
        Row("MatMul f64", (_f(128, 256, dtype=np.float64), _f(256, 256, dtype=np.float64))),
        Row("MatMul f64 weights", (_f(64, 256, dtype=np.float64), _w(256, 256, dtype=np.float64))),
        Row("MatMul i64", (_i(0, 9, 64, 64), _i(0, 9, 64, 64))),
        Row("MatMul i32", (_i(0, 9, 128, 128, dtype=np.int32), _i(0, 9, 128, 128, dtype=np.int32))),
        Row("Gemm", (_f(64, 512), _w(512, 512), _w(512))),
        Row("Gemm transB", (_f(64, 512), _w(512, 512), _w(512)), {"transB": 1}),
        Row("Gemm transA fed", (_f(256, 64), _f(256, 128)), {"transA": 1, "alpha": 0.5}),
        Row("Gemm f64", (_f(64, 256, dtype=np.float64), _f(256, 256, dtype=np.float64), _f(256, dtype=np.float64))),
        Row(
            "MatMulInteger",
            (
                _i(0, 255, 64, 256, dtype=np.uint8),
                Given(_RNG.integers(0, 255, (256, 256)).astype(np.uint8), constant=True),
            ),
        ),
        Row("Einsum bhid,bhjd", (_f(1, 8, 64, 32), _f(1, 8, 64, 32)), {"equation": "bhid,bhjd->bhij"}),
        Row("Einsum bij,bjk", (_f(8, 64, 64), _f(8, 64, 64)), {"equation": "bij,bjk->bik"}),
        Row("Einsum outer", (_f(256), _f(256)), {"equation": "i,j->ij"}),
        Row("Einsum bchw,c", (_f(1, 64, 32, 32), _f(64)), {"equation": "bchw,c->bhw"}),
        Row("Det", (_f(64, 8, 8),)),
    ],
}
