"""Operators that sample images: GridSample, RoiAlign, MaxRoiPool, DeformConv, Col2Im, MaxUnpool."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.kernels.one_node import check, close, run

RNG = np.random.default_rng(7)


def normal(*shape: int, dtype=np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode, padding, align):
    options = {"mode": mode, "padding_mode": padding, "align_corners": align, "tolerance": 3e-6}
    for spatial, points in (((5,), (9,)), ((4, 6), (3, 7)), ((3, 4, 5), (2, 3, 3))):
        grid = (RNG.random((2, *points, len(spatial))) * 5 - 2.5).astype(np.float32)
        check("GridSample", [normal(2, 3, *spatial), grid], **options)
    wide = normal(1, 2, 4, 6, dtype=np.float64), RNG.random((1, 3, 3, 2)) * 2 - 1
    check("GridSample", wide, **options)


def test_grid_sample_against_torch():
    import torch

    x, grid = normal(2, 40, 9, 11), (RNG.random((2, 50, 3, 2)) * 2.4 - 1.2).astype(np.float32)
    for mode, padding in (("bilinear", "reflection"), ("bilinear", "zeros"), ("bilinear", "border")):
        want = torch.nn.functional.grid_sample(
            torch.from_numpy(x), torch.from_numpy(grid), mode, padding, align_corners=False
        ).numpy()
        got = run("GridSample", [x, grid], mode="linear", padding_mode=padding)[0]
        close(got, want, 3e-6)


def test_grid_sample_takes_any_coordinate():
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    places = np.array([[np.nan, 0], [np.inf, 0], [-1e30, 0], [1e30, 1e30]], np.float32).reshape(1, 1, 4, 2)
    for mode in ("nearest", "linear", "cubic"):
        got = run("GridSample", [x, places], mode=mode)[0]
        np.testing.assert_array_equal(got, 0)
        for padding in ("border", "reflection"):
            got = run("GridSample", [x, places], mode=mode, padding_mode=padding)[0]
            assert np.isfinite(got).all()


def test_grid_sample_of_empty_tensors():
    none = np.zeros((1, 2, 0, 3), np.float32)
    check("GridSample", [none, np.zeros((1, 2, 2, 2), np.float32)], want=[np.zeros((1, 2, 2, 2), np.float32)])
    with pytest.raises(OpforgeError, match="an empty image has no border"):
        run("GridSample", [none, np.zeros((1, 2, 2, 2), np.float32)], padding_mode="border")


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("way", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(mode, way, ratio):
    rois = np.array([[0, 0, 9, 9], [-3, 2, 4, 5.5], [7, 7, 7, 7], [5, 5, 30, 20]], np.float32)
    options = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio, "spatial_scale": 0.7}
    check(
        "RoiAlign",
        [normal(2, 3, 8, 10), rois, np.array([0, 1, 1, 0])],
        mode=mode,
        coordinate_transformation_mode=way,
        tolerance=2e-6,
        **options,
    )


def test_roi_align_refuses():
    x, rois = normal(1, 1, 4, 4), np.array([[0, 0, 2, 2]], np.float32)
    with pytest.raises(OpforgeError, match="region 0 lies in image 1 of 1"):
        run("RoiAlign", [x, rois, np.array([1])])
    with pytest.raises(OpforgeError, match="not finite or takes too many samples"):
        run("RoiAlign", [x, rois + np.float32(np.inf), np.array([0])])


def test_max_roi_pool():
    x = normal(2, 3, 8, 10)
    rois = np.array([[0, 0, 0, 9, 7], [1, 2, 1, 5, 6], [1, 8, 6, 30, 30], [0, 20, 20, 22, 22]], np.float32)
    want = np.zeros((4, 3, 2, 3), np.float32)
    for r, (n, *edges) in enumerate(rois):
        x0, y0, x1, y1 = np.round(edges).astype(int)
        height, width = max(y1 - y0 + 1, 1) / 2, max(x1 - x0 + 1, 1) / 3
        for i, j in np.ndindex(2, 3):
            rows = np.clip([np.floor(i * height) + y0, np.ceil((i + 1) * height) + y0], 0, 8).astype(int)
            columns = np.clip([np.floor(j * width) + x0, np.ceil((j + 1) * width) + x0], 0, 10).astype(int)
            part = x[int(n), :, rows[0] : rows[1], columns[0] : columns[1]]
            want[r, :, i, j] = part.max(axis=(1, 2)) if part.size else 0
    check("MaxRoiPool", [x, rois], want=[want], pooled_shape=[2, 3])
    with pytest.raises(OpforgeError, match="lies in no image of the batch"):
        run("MaxRoiPool", [x, rois + 2], pooled_shape=[2, 3])


def sampled(x: np.ndarray, at: tuple[float, ...]) -> float:
    low = np.floor(at).astype(int)
    total = 0.0
    for corner in np.ndindex(*[2] * x.ndim):
        place = low + corner
        if all(0 <= p < n for p, n in zip(place, x.shape, strict=True)):
            total += float(np.prod([1 - abs(a - p) for a, p in zip(at, place, strict=True)])) * float(x[tuple(place)])
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spatial", [(7,), (5, 6), (4, 3, 4)])
def test_deform_conv(dtype, spatial):
    n, groups, offset_groups, kernel, stride, pad, dilation = len(spatial), 2, 2, 2, 2, 1, 2
    out = [(s + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for s in spatial]
    taps = kernel**n
    x, w = normal(2, 4, *spatial, dtype=dtype), normal(6, 2, *[kernel] * n, dtype=dtype)
    offset = normal(2, offset_groups * taps * n, *out, dtype=dtype)
    bias, mask = normal(6, dtype=dtype), normal(2, offset_groups * taps, *out, dtype=dtype)
    want = np.zeros((2, 6, *out))
    for image, m, *place in np.ndindex(want.shape):
        total = float(bias[m])
        for c, *tap in np.ndindex(w.shape[1:]):
            channel = m // 3 * 2 + c
            flat = channel // 2 * taps + int(np.ravel_multi_index(tap, [kernel] * n))
            at = [
                place[d] * stride - pad + tap[d] * dilation + float(offset[(image, flat * n + d, *place)])
                for d in range(n)
            ]
            value = sampled(x[image, channel], tuple(at)) * float(mask[(image, flat, *place)])
            total += value * float(w[(m, c, *tap)])
        want[(image, m, *place)] = total
    options = {"strides": [stride] * n, "pads": [pad] * 2 * n, "dilations": [dilation] * n}
    check(
        "DeformConv",
        [x, w, offset, bias, mask],
        want=[want.astype(dtype)],
        tolerance=3e-6,
        group=groups,
        offset_group=offset_groups,
        **options,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_col2im(dtype):
    import torch

    options = {"dilations": [1, 2], "strides": [2, 1], "pads": [1, 0, 2, 1]}
    image, block = (7, 6), (2, 3)
    columns = ((7 + 3 - 2) // 2 + 1) * ((6 + 1 - 5) // 1 + 1)
    x = RNG.integers(0, 9, (2, 3 * 6, columns)).astype(dtype)
    padded = torch.nn.functional.fold(
        torch.from_numpy(x.astype(np.float64)), (7 + 3, 6 + 1), block, dilation=(1, 2), stride=(2, 1)
    )
    want = padded.numpy()[:, :, 1:8, 0:6].astype(dtype)
    check("Col2Im", [x, np.array(image), np.array(block)], want=[want], **options)


def test_max_unpool():
    import torch

    x = normal(2, 3, 6, 8)
    pooled, indices = torch.nn.functional.max_pool2d(torch.from_numpy(x), 2, return_indices=True)
    want = torch.nn.functional.max_unpool2d(pooled, indices, 2).numpy()
    planes = np.arange(6).reshape(2, 3, 1, 1) * 48
    arrays = [pooled.numpy(), indices.numpy() + planes]
    check("MaxUnpool", arrays, want=[want], kernel_shape=[2, 2], strides=[2, 2])
    larger = np.zeros((2, 3, 7, 9), np.float32)
    larger[:, :, :6, :8] = want
    check("MaxUnpool", [*arrays, np.array([2, 3, 7, 9])], want=[larger], kernel_shape=[2, 2], strides=[2, 2])
    with pytest.raises(OpforgeError, match="index 999 is out of range"):
        run("MaxUnpool", [arrays[0], np.full_like(arrays[1], 999)], kernel_shape=[2, 2], strides=[2, 2])
