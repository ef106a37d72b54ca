"""Convolutions, pools and norms in float64 NumPy, by definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def windows(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> np.ndarray:
    """[N, C, *out, *kernel]: the taps of every output of a padded [N, C, *in]."""
    n = len(kernel)
    span = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    view = sliding_window_view(x, span, axis=tuple(range(2, 2 + n)))
    steps = [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilations]
    return view[(slice(None), slice(None), *steps)]


def pad(x: np.ndarray, pads: Sequence[int], value: float = 0.0) -> np.ndarray:
    n = len(pads) // 2
    widths = [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)]
    return np.pad(x.astype(np.float64), widths, constant_values=value)


def convolve(x, w, bias, strides, pads, dilations, groups=1):
    """ONNX Conv of any dimension."""
    n = w.ndim - 2
    taps = windows(pad(x, pads), w.shape[2:], strides, dilations)
    outputs = []
    for part, weights in zip(np.split(taps, groups, 1), np.split(w.astype(np.float64), groups, 0), strict=True):
        axes = [1, *range(2 + n, 2 + 2 * n)]
        outputs.append(np.moveaxis(np.tensordot(part, weights, (axes, [1, *range(2, 2 + n)])), -1, 1))
    return np.concatenate(outputs, 1) + bias.astype(np.float64).reshape(1, -1, *[1] * n)


def convolve_transposed(x, w, bias, strides, pads, dilations, groups=1, extra=0):
    """ONNX ConvTranspose: each input adds its product with the kernel to the outputs that it reaches."""
    n = w.ndim - 2
    full = [
        (i - 1) * s + (k - 1) * d + 1 + extra
        for i, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *full))
    for g in range(groups):
        source = np.split(x.astype(np.float64), groups, 1)[g]
        weights = np.split(w.astype(np.float64), groups, 0)[g]
        target = out[:, g * w.shape[1] : (g + 1) * w.shape[1]]
        for tap in np.ndindex(*w.shape[2:]):
            at = [
                slice(t * d, t * d + (i - 1) * s + 1, s)
                for t, d, i, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            ]
            product = np.tensordot(source, weights[(slice(None), slice(None), *tap)], ([1], [0]))
            target[(slice(None), slice(None), *at)] += np.moveaxis(product, -1, 1)
    keep = [slice(pads[i], full[i] - pads[n + i]) for i in range(n)]
    return out[(slice(None), slice(None), *keep)] + bias.astype(np.float64).reshape(1, -1, *[1] * n)


def pool_average(x, kernel, strides, pads, counted, ceil):
    """ONNX AveragePool; windows that begin in the padding behind the image do not exist."""
    n = len(kernel)
    out = []
    for i in range(n):
        room = x.shape[2 + i] + pads[i] + pads[n + i] - kernel[i]
        size = (-(-room // strides[i]) if ceil else room // strides[i]) + 1
        out.append(size - 1 if (size - 1) * strides[i] >= x.shape[2 + i] + pads[i] else size)
    more = [max(0, (out[i] - 1) * strides[i] + kernel[i] - x.shape[2 + i] - pads[i] - pads[n + i]) for i in range(n)]
    padded = pad(x, pads)
    ones = pad(np.ones(x.shape), pads, 1.0 if counted else 0.0)
    beyond = [0] * n + more
    axes = tuple(range(2 + n, 2 + 2 * n))
    sums = windows(pad(padded, beyond), kernel, strides, [1] * n).sum(axes)
    counts = windows(pad(ones, beyond), kernel, strides, [1] * n).sum(axes)
    cut = (slice(None), slice(None), *[slice(0, size) for size in out])
    return sums[cut] / counts[cut]


def pool_max(x, kernel, strides, pads):
    n = len(kernel)
    return windows(pad(x, pads, -np.inf), kernel, strides, [1] * n).max(tuple(range(2 + n, 2 + 2 * n)))


def group_normal(x, groups, scale, bias, epsilon=1e-5):
    rows = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    centred = rows - rows.mean(-1, keepdims=True)
    unit = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)).reshape(x.shape)
    column = (1, -1, *[1] * (x.ndim - 2))
    return unit * scale.reshape(column) + bias.reshape(column)
