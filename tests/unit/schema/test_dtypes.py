"""Dtypes: numbers, names and what parse takes."""

import ml_dtypes
import numpy as np
import onnx
import pytest

from opforge.errors import DtypeError
from opforge.schema import ALL, DECLARABLE, DType, bf16, bool_, f32, floating, i32, i64, index


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_numbers_agree_with_numpy_and_onnx(dtype):
    assert dtype.numpy.itemsize == dtype.itemsize
    assert dtype.numpy.name == dtype.long_name
    assert onnx.helper.tensor_dtype_to_np_dtype(dtype.onnx) == dtype.numpy
    assert DType.from_onnx(dtype.onnx) is dtype
    assert DType.from_dlpack(dtype.code, dtype.bits) is dtype
    if dtype is not bf16:
        device = np.zeros(1, dtype.numpy)
        assert (dtype.is_float, dtype.is_integer, dtype.is_bool) == tuple(
            device.dtype.kind in k for k in ("f", "iu", "b")
        )


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_parse_takes_every_spelling(dtype):
    for value in (dtype, dtype.name, dtype.long_name, dtype.numpy, dtype.numpy.type, repr(dtype).rpartition(".")[2]):
        assert DType.parse(value) is dtype


def test_parse_takes_other_libraries():
    class Fake:  # what torch.float32 and tf.float32 look like from outside
        def __str__(self):
            return "torch.float32"

    assert DType.parse(Fake()) is f32
    assert DType.parse(ml_dtypes.bfloat16) is bf16
    assert DType.parse(bool) is bool_


@pytest.mark.parametrize("value", ["float", "", "F32", None, 3, np.complex64, "float8_e4m3fn"])
def test_parse_refuses(value):
    with pytest.raises(DtypeError, match="unknown dtype") as caught:
        DType.parse(value)
    assert "f16, bf16, f32" in str(caught.value)


def test_groups():
    assert [d.name for d in floating] == ["f16", "bf16", "f32", "f64"]
    assert index == (i32, i64)
    assert set(floating) | set(index) < set(DECLARABLE) < set(ALL)


def test_unknown_numbers_are_named():
    with pytest.raises(DtypeError, match="got: 8"):
        DType.from_onnx(8)
    with pytest.raises(DtypeError, match="code 2, 8 bits"):
        DType.from_dlpack(2, 8)
