"""Conversions of the small types, exhaustively, against ml_dtypes and onnx's reference; bits that must not change."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx.reference.ops.op_cast import cast_to

from opforge.bin.encode import pack_bits
from opforge.bin.format import read
from opforge.errors import UnsupportedError
from tests.unit.bin.programs import ONNX_DTYPES, Builder, single

F8 = [
    np.dtype(t)
    for t in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
]
POWER = np.dtype(ml_dtypes.float8_e8m0fnu)
F4 = np.dtype(ml_dtypes.float4_e2m1fn)
SMALL_INTEGERS = [np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2)]
name = lambda d: d.name  # noqa: E731 - an id of a parameter


def cast(folder: Path, x: np.ndarray, to: np.dtype, **attributes: object) -> np.ndarray:
    result: np.ndarray = single(folder, "Cast", [x], to, to=ONNX_DTYPES[to], **attributes)
    assert result.dtype == to
    return result


def codes(x: np.ndarray) -> np.ndarray:
    """Bits of small floats, all NaN of a sign alike."""
    return x.view(np.uint8)


def halves(dtype: type) -> np.ndarray:
    return np.arange(65536, dtype=np.uint16).view(dtype)


def floats() -> np.ndarray:
    """Random bits, every number of every small type, the middles between neighbours, and the floats beside them."""
    rng = np.random.default_rng(5)
    parts = [rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)]
    for dtype in (*F8, F4):
        known = np.unique(np.arange(256 if dtype != F4 else 16, dtype=np.uint8).view(dtype).astype(np.float32))
        known = known[np.isfinite(known)]
        middles = ((known[1:].astype(np.float64) + known[:-1]) / 2).astype(np.float32)
        edge = np.float32([known[-1] + (known[-1] - known[-2]) / 2, known[-1] * 2])
        for values in (known, middles, edge, -edge):
            parts += [values, np.nextafter(values, np.float32(np.inf)), np.nextafter(values, np.float32(-np.inf))]
    return np.concatenate([*parts, np.float32([0, -0.0, np.inf, -np.inf, np.nan])])


@pytest.mark.parametrize("dtype", [*F8, POWER], ids=name)
@pytest.mark.parametrize("to", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_every_code_of_eight_bits(dtype: np.dtype, to: type, tmp_path: Path) -> None:
    x = np.arange(256, dtype=np.uint8).view(dtype)
    got = cast(tmp_path, x, np.dtype(to))
    with np.errstate(over="ignore"):
        wanted = x.astype(np.float64).astype(to)
    assert np.array_equal(got, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(wanted)[~np.isnan(wanted)])


@pytest.mark.parametrize("dtype", F8, ids=name)
@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("source", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_to_eight_bits(dtype: np.dtype, saturate: int, source: type, tmp_path: Path) -> None:
    x = floats() if source is np.float32 else halves(source)
    with np.errstate(all="ignore"):
        wanted = cast_to(x, ONNX_DTYPES[dtype], bool(saturate))
    got = cast(tmp_path, x, dtype, saturate=saturate)
    same = (codes(got) == codes(wanted)) | (np.isnan(got.astype(np.float32)) & np.isnan(wanted.astype(np.float32)))
    assert same.all(), (x[~same][:8], got[~same][:8], wanted[~same][:8])


def test_float64_is_rounded_once(tmp_path: Path) -> None:
    """Just above the middle of two numbers of e5m2, by less than a float32 can say."""
    dtype = np.dtype(ml_dtypes.float8_e5m2)
    x = np.float64([1.125 + 2.0**-40, 1.125, 1.375 - 2.0**-40, 1.375])
    assert cast(tmp_path, x, dtype).astype(np.float64).tolist() == [1.25, 1.0, 1.25, 1.5]
    assert cast(tmp_path, np.int64([17, 18, 19, 2**62]), dtype).astype(np.float64).tolist() == [16, 16, 20, 57344]


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_to_powers_of_two(saturate: int, mode: str, tmp_path: Path) -> None:
    x = np.concatenate([np.abs(floats()), halves(np.float16).astype(np.float32)])
    wanted = cast_to(x, ONNX_DTYPES[POWER], bool(saturate), mode)
    assert np.array_equal(codes(cast(tmp_path, x, POWER, saturate=saturate, round_mode=mode)), codes(wanted))


def test_four_bit_floats(tmp_path: Path) -> None:
    x = np.arange(16, dtype=np.uint8).view(F4)
    assert np.array_equal(cast(tmp_path, x, np.dtype(np.float32)), x.astype(np.float32))
    for source in (floats(), halves(np.float16)):
        with np.errstate(all="ignore"):
            wanted = source.astype(F4)
        got = cast(tmp_path, source, F4)
        same = (codes(got) == codes(wanted)) | np.isnan(source.astype(np.float32))
        assert same.all(), (source[~same][:8], got[~same][:8], wanted[~same][:8])
    assert cast(tmp_path, np.float32([np.nan, np.inf, -np.inf]), F4).astype(np.float32).tolist() == [0, 6, -6]


@pytest.mark.parametrize("dtype", SMALL_INTEGERS, ids=name)
@pytest.mark.parametrize("source", [np.float32, np.float16, np.int8, np.int64, np.uint64])
def test_small_integers(dtype: np.dtype, source: type, tmp_path: Path) -> None:
    """Reals are truncated; the low bits of what is out of range stay, as ONNX's reference has it."""
    x = np.arange(-20, 21).astype(source)
    whole = x.astype(np.int64).astype(np.int8).astype(dtype)
    assert np.array_equal(cast(tmp_path, x, dtype).view(np.uint8), whole.view(np.uint8))
    back = cast(tmp_path, whole, np.dtype(source))
    assert np.array_equal(back, whole.astype(np.int64).astype(source))


@pytest.mark.parametrize("dtype", [*SMALL_INTEGERS, F4], ids=name)
@pytest.mark.parametrize("count", [0, 1, 3, 5, 1021])
def test_part_filled_bytes(dtype: np.dtype, count: int, tmp_path: Path) -> None:
    """One element per byte outside, packed inside: inputs, outputs, constants, views."""
    bits = 2 if dtype.name in ("int2", "uint2") else 4
    rng = np.random.default_rng(count)
    x = rng.integers(0, 1 << bits, count, dtype=np.uint8).view(dtype)
    assert np.array_equal(single(tmp_path, "Identity", [x], dtype).view(np.uint8), x.view(np.uint8))
    builder = Builder()
    held = builder.constant(x)
    builder.program.values[held].data = pack_bits(x, bits)
    wide = builder.node("Cast", [held], np.float32, [count], to=1)
    builder.output(held, wide)
    session = builder.session(tmp_path)
    same, floats_ = session.run({}).values()
    assert np.array_equal(same.view(np.uint8), x.view(np.uint8))
    assert np.array_equal(floats_, x.astype(np.float32))
    stored = read(session.path).program.values[held].data
    assert stored is not None
    assert stored.nbytes == -(-count * bits // 8)


def test_bits_stay(tmp_path: Path) -> None:
    x = np.arange(256, dtype=np.uint8)
    for dtype in (*F8, POWER, np.dtype(np.int8)):
        got = single(tmp_path, "BitCast", [x], dtype, since=26, to=ONNX_DTYPES[dtype])
        assert got.dtype == dtype
        assert np.array_equal(got.view(np.uint8), x)
    nibbles = np.arange(16, dtype=np.uint8).view(ml_dtypes.uint4)
    assert np.array_equal(single(tmp_path, "BitCast", [nibbles], F4, since=26, to=23).view(np.uint8), np.arange(16))
    wide = np.float64([1.5, -0.0, np.inf])
    assert np.array_equal(single(tmp_path, "BitCast", [wide], np.int64, since=26, to=7), wide.view(np.int64))


def test_sub_byte_elements_are_not_moved(tmp_path: Path) -> None:
    x = np.zeros((2, 4), ml_dtypes.int4)
    with pytest.raises(UnsupportedError, match="a dtype without whole bytes"):
        single(tmp_path, "Transpose", [x], np.dtype(ml_dtypes.int4), perm=[1, 0])
