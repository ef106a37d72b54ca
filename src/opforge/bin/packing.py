"""Packings of weights: how the compiler lays constants out for the runtime's kernels.

Every packing works in blocks of 16 output channels; when the channel count modulo 16 is 1 to 8 the last block is
8 wide, otherwise it is padded with zeros to 16. One packing serves every instruction set. docs/design/runtime.md
lists them; tests/unit/kernels holds them against what the kernels read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opforge.errors import InternalError

__all__ = [
    "ELEMENTS",
    "PACKERS",
    "Late",
    "blocks16",
    "pack_codes",
    "pack_conv16",
    "pack_deconv16",
    "pack_depthwise16",
    "pack_first16",
    "pack_groups",
    "pack_integer16",
    "pack_integer_depthwise16",
    "pack_integer_taps16",
    "pack_matmul16",
    "pack_winograd16",
    "padded_channels",
    "winograd_fits",
]

Array = NDArray[np.float32]

_WINOGRAD_G = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
    dtype=np.float64,
)


def padded_channels(channels: int) -> int:
    """Channels that the blocks of ``channels`` hold, padding included (a multiple of 8)."""
    return (channels + 7) // 8 * 8


def blocks16(channels: int) -> list[tuple[int, int]]:
    """(first channel, width) of each block: width 16, or 8 for a half block at the end."""
    return [(c, 8 if channels - c <= 8 else 16) for c in range(0, channels, 16)]


def _blocked(last_axis_is_channels: NDArray[np.floating]) -> list[NDArray[np.floating]]:
    """Cuts the last axis into blocks, the last one padded with zeros to its width."""
    w = last_axis_is_channels
    parts = []
    for start, width in blocks16(w.shape[-1]):
        part = w[..., start : start + width]
        missing = width - part.shape[-1]
        if missing:
            part = np.concatenate([part, np.zeros((*part.shape[:-1], missing), part.dtype)], axis=-1)
        parts.append(part)
    return parts


def _join(parts: list[NDArray[np.floating]], dtype: np.dtype[np.floating]) -> Array:
    flat = [np.ascontiguousarray(part).reshape(-1) for part in parts]
    return np.concatenate(flat).astype(dtype, copy=False) if flat else np.zeros(0, dtype)


def pack_matmul16(weights: Array) -> Array:
    """``[K, N]`` to ``[N block][K][16|8]``.

    Args:
        weights: the right operand of a matrix product, ``[K, N]``.

    Returns:
        A flat array of ``K * padded_channels(N)`` elements of the same dtype.
    """
    return _join(_blocked(weights), weights.dtype)


def pack_conv16(weights: Array) -> Array:
    """``[O, I, KH, KW]`` to ``[O block][I block of 16][KH][KW][I in block, not padded][16|8]``."""
    parts: list[NDArray[np.floating]] = []
    channels_in = weights.shape[1]
    for block in _blocked(weights.transpose(1, 2, 3, 0)):  # [I, KH, KW, lanes]
        parts += [block[i : i + 16].transpose(1, 2, 0, 3) for i in range(0, channels_in, 16)]
    return _join(parts, weights.dtype)


def pack_depthwise16(weights: Array) -> Array:
    """``[C, 1, KH, KW]`` to ``[C block][KH * KW][16|8]``."""
    channels, _, kernel_h, kernel_w = weights.shape
    return _join(_blocked(weights.reshape(channels, kernel_h * kernel_w).T), weights.dtype)


def pack_first16(weights: Array) -> Array:
    """``[O, C, KH, KW]`` (C at most 4) to ``[O block][C][KH][KW][16|8]``."""
    return _join(_blocked(weights.transpose(1, 2, 3, 0)), weights.dtype)


def pack_winograd16(weights: Array) -> Array:
    """``[O, I, 3, 3]`` to the transformed weights of F(4x4, 3x3), ``[36][O block][I][16|8]``.

    The transform runs in float64 and rounds once.
    """
    transformed = np.einsum("ay,oiyx,bx->abio", _WINOGRAD_G, weights.astype(np.float64), _WINOGRAD_G, optimize=True)
    parts: list[NDArray[np.floating]] = []
    for tap in transformed.reshape(36, weights.shape[1], weights.shape[0]).astype(weights.dtype):
        parts += _blocked(tap)
    return _join(parts, weights.dtype)


def pack_deconv16(weights: Array) -> Array:
    """``[I, O, 2, 2]`` (ONNX ConvTranspose) to one 1x1 ``conv16`` packing per tap ``ky * 2 + kx``."""
    parts: list[NDArray[np.floating]] = []
    for ky in range(weights.shape[2]):
        for kx in range(weights.shape[3]):
            parts += _blocked(weights[:, :, ky, kx])
    return _join(parts, weights.dtype)


def winograd_fits(channels_in: int, channels_out: int, height: int, width: int) -> bool:
    """Whether F(4x4, 3x3) pays for a 3x3, stride 1 convolution with this output size.

    Transformed weights must stay within about 10 MB (L2 and L3), and images of less than 12 pixels waste tiles.
    """
    return min(height, width) >= 12 and 144 * channels_in * channels_out <= 10_000_000 and channels_in >= 16


Bytes = NDArray[np.int8]


def _groups(values: Bytes) -> Bytes:
    """``[terms, N]`` to ``[N block of 16][terms / 4][16][4]``, with zeros around."""
    terms, n = values.shape
    whole = np.zeros((-(-terms // 4) * 4, -(-n // 16) * 16), np.int8)
    whole[:terms, :n] = values
    return np.ascontiguousarray(whole.reshape(len(whole) // 4, 4, -1, 16).transpose(2, 0, 3, 1))


def pack_integer16(weights: Bytes) -> Bytes:
    """``[K, N]`` to ``[N block][K / 4][16][4]``; ``[O, I, KH, KW]`` likewise, a row of the window after the other.

    The bytes of a window's row are ordered ``kx``, channel, and filled up with zeros to whole groups of 4.
    """
    if weights.ndim == 2:
        return _groups(weights).reshape(-1)
    rows = weights.transpose(2, 3, 1, 0).reshape(weights.shape[2], -1, weights.shape[0])
    return np.concatenate([_groups(row) for row in rows], axis=1).reshape(-1)


def pack_integer_taps16(weights: Bytes) -> Bytes:
    """``[O, I, KH, KW]`` to ``[O block][tap][I / 4][16][4]``."""
    taps = weights.transpose(2, 3, 1, 0).reshape(-1, weights.shape[1], weights.shape[0])
    return np.concatenate([_groups(tap) for tap in taps], axis=1).reshape(-1)


def pack_integer_depthwise16(weights: Bytes) -> Bytes:
    """``[C, 1, KH, KW]`` to ``[tap][C, filled up to a multiple of 16]``."""
    channels = weights.shape[0]
    packed = np.zeros((weights.shape[2] * weights.shape[3], -(-channels // 16) * 16), np.int8)
    packed[:, :channels] = weights.reshape(channels, -1).T
    return packed.reshape(-1)


def pack_codes(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """``[K, N]`` to ``[N block of 16][words][16]`` little-endian words of 32 bits, each with ``32 / bits`` rows.

    The lowest bits of a word are the first row; what is missing at the ends is 0.
    """
    rows = 32 // bits
    k, n = codes.shape
    words = np.zeros((-(-k // rows), -(-n // 16) * 16), "<u4")
    for i in range(rows):
        part = codes[i::rows]
        words[: len(part), :n] |= part.astype(np.uint32) << np.uint32(bits * i)
    blocks = np.ascontiguousarray(words.reshape(len(words), -1, 16).swapaxes(0, 1))
    return blocks.view(np.uint8).reshape(*blocks.shape[:2], 64)


def pack_groups(data: NDArray[Any]) -> NDArray[Any]:
    """``[groups, N]`` to ``[N block of 16][groups][16]``, filled up with zeros."""
    padded = np.zeros((len(data), -(-data.shape[1] // 16) * 16), data.dtype)
    padded[:, : data.shape[1]] = data
    return np.ascontiguousarray(padded.reshape(len(data), -1, 16).swapaxes(0, 1))


PACKERS: dict[str, Callable[[Any], NDArray[Any]]] = {
    "matmul16": pack_matmul16,
    "conv16": pack_conv16,
    "depthwise16": pack_depthwise16,
    "first16": pack_first16,
    "winograd16": pack_winograd16,
    "deconv16": pack_deconv16,
    "integer16": pack_integer16,
    "integer_taps16": pack_integer_taps16,
    "integer_depthwise16": pack_integer_depthwise16,
}
"""Packing name (``Value.packing``) to the function that makes it."""


def _conv_elements(shape: Sequence[int]) -> int:
    return padded_channels(shape[0]) * math.prod(shape[1:])


ELEMENTS: dict[str, Callable[[Sequence[int]], int]] = {
    "matmul16": lambda shape: shape[0] * padded_channels(shape[1]),
    "conv16": _conv_elements,
    "depthwise16": _conv_elements,
    "first16": _conv_elements,
    "winograd16": lambda shape: 36 * padded_channels(shape[0]) * shape[1],
    "deconv16": lambda shape: padded_channels(shape[1]) * shape[0] * shape[2] * shape[3],
}
"""Packing name to the number of elements that it makes of weights of a shape, for weights that are packed late."""


class Late:
    """Large weights that are packed when the file is written, one after the other, so that they are never all held."""

    def __init__(self, weights: Array, packing: str) -> None:
        """Keep weights, which may be a view of a mapped file; ``packing`` is "" for a dense copy."""
        self._weights, self._packing = weights, packing
        self.dtype = weights.dtype
        self.size = ELEMENTS[packing](weights.shape) if packing else weights.size
        self.shape = (self.size,) if packing else weights.shape
        self.nbytes = self.size * weights.dtype.itemsize

    def __array__(self, dtype: np.dtype[np.float32] | None = None, copy: bool | None = None) -> Array:
        """Pack now."""
        made = PACKERS[self._packing](self._weights) if self._packing else np.array(self._weights, order="C")
        if made.size != self.size:
            raise InternalError("a packing has another size than its table says", where=self._packing, got=made.size)
        return made if dtype is None else made.astype(dtype)
