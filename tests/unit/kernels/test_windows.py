"""Convolutions, pools and Resize in every dtype that ONNX gives them, against PyTorch and onnx's reference."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from tests.unit.kernels.one_node import check, compiled, model_of
from tests.unit.kernels.reference import pad, windows

RNG = np.random.default_rng(11)


def normal(*shape: int, dtype=np.float64) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("constant", [0, 1])
def test_convolutions_of_doubles(n, constant):
    spatial, options = (9, 8, 7)[:n], {"group": 2, "strides": [2] * n, "dilations": [2] * n, "pads": [1] * 2 * n}
    x, w, bias = normal(2, 4, *spatial), normal(6, 2, *(3, 2, 3)[:n]), normal(6)
    tensors = [torch.from_numpy(v) for v in (x, w, bias)]
    forward = (torch.conv1d, torch.conv2d, torch.conv3d)[n - 1]
    want = forward(*tensors, stride=2, padding=1, dilation=2, groups=2).numpy()
    constants = (1, 2) if constant else ()
    check("Conv", [x, w, bias], want=[want], tolerance=1e-13, constants=constants, **options)
    back = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[n - 1]
    w, bias = normal(4, 3, *(3, 2, 3)[:n]), normal(6)
    want = back(tensors[0], torch.from_numpy(w), torch.from_numpy(bias), 2, 1, 0, 2, 2).numpy()
    check("ConvTranspose", [x, w, bias], want=[want], tolerance=1e-13, constants=constants, **options)


def test_a_network_of_doubles():
    """What an exporter writes in double precision: convolution, normalisation, activation, pools, product."""
    from onnx import helper, numpy_helper

    weights = {"w": normal(8, 3, 3, 3), "s": normal(8), "b": normal(8), "m": normal(8), "v": normal(8) ** 2}
    weights |= {"k": normal(8, 5), "c": normal(5)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "k", "c"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    x = normal(2, 3, 8, 8)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 11, x.shape)],
        [helper.make_tensor_value_info("y", 11, [2, 5])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    t = {k: torch.from_numpy(v) for k, v in weights.items()}
    a = torch.conv2d(torch.from_numpy(x), t["w"], padding=1)
    a = torch.relu(torch.nn.functional.batch_norm(a, t["m"], t["v"], t["s"], t["b"], eps=float(np.float32(1e-5))))
    a = torch.nn.functional.max_pool2d(a, 2).mean((2, 3)) @ t["k"] + t["c"]
    np.testing.assert_allclose(compiled(model, {"x": x})[0], torch.softmax(a, 1).numpy(), rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int8, np.float16])
@pytest.mark.parametrize("ceil", [0, 1])
def test_max_pool(dtype, ceil):
    x = RNG.integers(-100, 100, (2, 3, 9, 10)).astype(dtype)
    window = torch.nn.functional.max_pool2d(
        torch.from_numpy(x.astype(np.float64)), (3, 2), 2, 1, ceil_mode=bool(ceil), return_indices=True
    )
    planes = np.arange(6).reshape(2, 3, 1, 1) * 90
    want = [window[0].numpy().astype(dtype), window[1].numpy() + planes]
    options = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": ceil}
    check("MaxPool", [x], (None, np.int64), want=want, **options)


@pytest.mark.parametrize("op", ["AveragePool", "LpPool"])
def test_other_pools_of_doubles(op):
    for n in (1, 2, 3):
        x = normal(2, 3, *(7, 8, 6)[:n])
        options = {"kernel_shape": [3, 2, 2][:n], "strides": [2] * n}
        check(op, [x], tolerance=1e-13, **options)


TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("way", TRANSFORMS)
def test_resize(dtype, mode, way):
    x = normal(1, 2, 6, 7, dtype=dtype)
    roi = np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.3], np.float32) if way == "tf_crop_and_resize" else None
    tolerance = 5e-6  # the reference computes scales in f32
    for antialias, exclude in product((0, 1), (0, 1)):
        if antialias and way == "tf_crop_and_resize":
            continue
        options = {
            "mode": mode,
            "coordinate_transformation_mode": way,
            "antialias": antialias,
            "exclude_outside": exclude if mode == "cubic" else 0,
            "extrapolation_value": 10.0,
            "tolerance": tolerance,
        }
        check("Resize", [x, roi, None, np.array([1, 2, 4, 9], np.int64)], **options)
        if roi is None:
            check("Resize", [x, None, np.array([1, 1, 0.57, 1.7], np.float32)], **options)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_keeps_the_ratio(policy, mode):
    x, sizes = normal(1, 2, 6, 9, dtype=np.float32), np.array([4, 8], np.int64)
    options = {"axes": [2, 3], "mode": mode, "tolerance": 5e-6, "keep_aspect_ratio_policy": policy}
    check("Resize", [x, None, None, sizes], **options)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_resize_of_integers(dtype):
    x = (RNG.integers(0, 200, (1, 2, 5, 6))).astype(dtype)
    roi = np.array([0, 0, -0.3, 0.2, 1, 1, 0.8, 1.3], np.float32)
    options = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 77.0}
    check("Resize", [x, roi, None, np.array([1, 2, 4, 9], np.int64)], mode="nearest", **options)
    wide = x.astype(np.float64)
    sizes = np.array([1, 2, 9, 4], np.int64)
    want = compiled(*model_of("Resize", [wide, None, None, sizes], mode="linear"))[0].astype(dtype)
    check("Resize", [x, None, None, sizes], want=[want], mode="linear")


def test_antialias_against_torch():
    x = normal(2, 3, 31, 17, dtype=np.float32)
    for mode, name in (("linear", "bilinear"), ("cubic", "bicubic")):
        want = torch.nn.functional.interpolate(torch.from_numpy(x), (7, 11), mode=name, antialias=True)
        options = {"mode": mode, "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1}
        sizes = np.array([2, 3, 7, 11], np.int64)
        check("Resize", [x, None, None, sizes], want=[want.numpy()], tolerance=2e-6, **options)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.float64])
def test_products(dtype):
    a, b, c = (RNG.integers(0, 50, s).astype(dtype) for s in ((2, 3, 4), (4, 5), (3, 5)))
    check("MatMul", [a, b], want=[a @ b])
    check("Gemm", [a[0], b.T.copy(), c], want=[a[0] @ b + c], transB=1)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.float64])
@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp"])
def test_reductions(dtype, op):
    x = RNG.integers(1, 4, (2, 3, 4)).astype(dtype)
    if np.dtype(dtype).kind != "u" and op not in ("LogSum",):
        x[0] = -x[0] if op != "Prod" else x[0]
    if op == "Mean" and np.dtype(dtype).kind != "f":
        x[..., -1] = x[..., 0]
        x[..., 1:3] = x[..., :1]
    wide = x.astype(np.float64)
    value = {
        "Sum": wide.sum(2),
        "Mean": wide.mean(2),
        "Max": wide.max(2),
        "Min": wide.min(2),
        "Prod": wide.prod(2),
        "SumSquare": (wide**2).sum(2),
        "L1": np.abs(wide).sum(2),
        "L2": np.sqrt((wide**2).sum(2)),
        "LogSum": np.log(np.abs(wide).sum(2)) if op != "LogSum" else np.log(wide.sum(2)),
        "LogSumExp": np.log(np.exp(wide).sum(2)),
    }[op]
    want = value.astype(dtype)
    check(f"Reduce{op}", [x, np.array([2])], want=[want], tolerance=1e-12, keepdims=0)


@pytest.mark.parametrize("width", [5, 40])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pools_hand_on_what_is_no_number(width, stride):
    x = normal(1, 2, 7, width, dtype=np.float32)
    x[0, 0, 2, 1], x[0, 0, 5, width - 2], x[0, 1, 3, width // 2], x[0, 1, 1, 3] = np.nan, np.inf, np.nan, -np.inf
    taps = windows(pad(x, [1] * 4, -np.inf), [3, 3], [stride] * 2, [1, 1])
    options = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [1] * 4}
    check("MaxPool", [x], want=[taps.max((4, 5)).astype(np.float32)], **options)
    check("AveragePool", [x], tolerance=1e-6, count_include_pad=1, **options)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 3), (4, 16, 16), (9, 33, 21), (130, 7, 40), (3, 0, 4), (0, 3, 2)])
def test_products_of_doubles(m, k, n):
    a, b, c = normal(2, m, k), normal(1, k, n), normal(n)
    check("MatMul", [a, b], want=[a @ b], tolerance=1e-14)
    for left, right in product((0, 1), (0, 1)):
        x, y = (a[0].T if left else a[0]), (b[0].T if right else b[0])
        options = {"transA": left, "transB": right, "alpha": 0.5, "beta": 2.0}
        arrays = [np.ascontiguousarray(x), np.ascontiguousarray(y), c]
        check("Gemm", arrays, want=[0.5 * (a[0] @ b[0]) + 2 * c], tolerance=1e-14, **options)
