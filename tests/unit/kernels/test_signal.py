"""DFT, STFT, Det and LRN against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.errors import OpforgeError
from tests.unit.kernels.one_node import check, run

RNG = np.random.default_rng(8)


def pairs(x: np.ndarray, dtype) -> np.ndarray:
    return np.stack([x.real, x.imag], -1).astype(dtype)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 12, 17, 60, 101, 128, 400])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dft_of_any_length(n, dtype):
    x = (RNG.standard_normal((2, n, 3)) + 1j * RNG.standard_normal((2, n, 3))).astype(np.complex128)
    tolerance = 1e-6 if dtype == np.float32 else 1e-13
    axis = np.array(1)
    for length in {None, max(1, n - 1), n + 3} if n < 20 else {None}:
        arrays = [pairs(x, dtype), None if length is None else np.array(length), axis]
        rounded = x if dtype == np.float64 else pairs(x, dtype)[..., 0] + 1j * pairs(x, dtype)[..., 1]
        check("DFT", arrays, want=[pairs(np.fft.fft(rounded, length, 1), dtype)], tolerance=tolerance)
        check("DFT", arrays, want=[pairs(np.fft.ifft(rounded, length, 1), dtype)], tolerance=tolerance, inverse=1)


@pytest.mark.parametrize("n", [2, 9, 16, 50])
def test_dft_of_real_signals(n):
    x = RNG.standard_normal((3, n)).astype(np.float32)
    want = pairs(np.fft.rfft(x.astype(np.float64)), np.float32)
    check("DFT", [x[..., None]], want=[want], tolerance=1e-6, onesided=1)
    spectrum = want[..., 0] + 1j * want[..., 1].astype(np.float64)
    for length in (2 * (n // 2), n + 1):
        back = np.fft.irfft(spectrum, length)[..., None].astype(np.float32)
        arrays = [want, np.array(length)]
        check("DFT", arrays, want=[back], tolerance=1e-6, onesided=1, inverse=1)


def test_dft_refuses():
    x = np.zeros((1, 4, 1), np.float32)
    with pytest.raises(OpforgeError, match="the length or the axis of DFT is not valid"):
        run("DFT", [x, None, np.array(2)])
    with pytest.raises(OpforgeError, match="the length or the axis of DFT is not valid"):
        run("DFT", [x, np.array(0)])


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stft(onesided, windowed, dtype):
    x = RNG.standard_normal((2, 100, 1)).astype(dtype)
    window = np.hanning(20).astype(dtype)
    frames = np.stack([x[:, k : k + 20, 0] * (window if windowed else 1) for k in range(0, 81, 7)], 1)
    spectrum = (np.fft.rfft if onesided else np.fft.fft)(frames.astype(np.float64))
    arrays = [x, np.array(7), window if windowed else None, None if windowed else np.array(20)]
    check("STFT", arrays, want=[pairs(spectrum, dtype)], tolerance=2e-6, onesided=onesided)
    # PyTorch's older exporter leaves out the last dimension of a real signal.
    check("STFT", [x[..., 0], *arrays[1:]], want=[pairs(spectrum, dtype)], tolerance=2e-6, onesided=onesided)


def test_mel_weights_of_integers_and_limits():
    numbers = [np.array(v, np.int64) for v in (8, 16, 8192)]
    edges = [np.array(v, np.float32) for v in (0, 4096)]
    for dtype, code in ((np.float64, 11), (np.float16, 10), (np.int32, 6)):
        check("MelWeightMatrix", [*numbers, *edges], [dtype], tolerance=1e-3, output_datatype=code)
    with pytest.raises(OpforgeError, match="do not lie within the spectrum"):
        run("MelWeightMatrix", [*numbers, edges[0], np.array(9000, np.float32)], [np.float32])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_det(dtype, n):
    x = RNG.standard_normal((2, 3, n, n)).astype(dtype)
    x[0, 0, :1] = 0
    want = np.linalg.det(x.astype(np.float64)).astype(dtype)
    check("Det", [x], want=[want], tolerance=1e-6 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("beta", [0.75, 0.6])
@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_lrn(dtype, beta, size):
    x = RNG.standard_normal((2, 6, 3, 7)).astype(dtype)
    squares = x.astype(np.float64) ** 2
    total = np.zeros_like(squares)
    for k in range(6):
        total[:, k] = squares[:, max(0, k - (size - 1) // 2) : k + size // 2 + 1].sum(1)
    want = (x / (1.5 + 0.3 / size * total) ** beta).astype(dtype)
    options = {"size": size, "alpha": 0.3, "beta": beta, "bias": 1.5}
    check("LRN", [x], want=[want], tolerance=2e-3 if dtype == np.float16 else 2e-6, **options)
