"""NumPy arrays as a host: numbers, byte orders, strides, sizes, threads, errors."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

from opforge import ops
from opforge.errors import ArgumentError, DtypeError

pytestmark = pytest.mark.compiler

X = np.linspace(-4, 4, 24, dtype=np.float32).reshape(4, 6)


def test_python_numbers_take_the_dtype_of_the_arrays():
    for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        assert ops.mod_sigmoid(X.astype(dtype), 0.5).dtype == dtype
        assert ops.mod_sigmoid(0.5, X.astype(dtype)).dtype == dtype
    assert ops.mod_sigmoid(0.5, 1).dtype == np.float64
    assert ops.mish([0.0, 1.0]).dtype == np.float64
    assert ops.mod_sigmoid(X, [0, 0, 0, 0, 0, 1]).shape == X.shape


def test_zero_dimensional_and_empty():
    assert ops.mish(np.float32(0)).shape == ()
    assert ops.mish(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert ops.mod_sigmoid(np.zeros((2, 0), np.float32), np.zeros((2, 1), np.float32)).shape == (2, 0)


def test_other_byte_order_and_unaligned_memory():
    expected = ops.mish(X)
    np.testing.assert_array_equal(ops.mish(X.astype(">f4")), expected)
    buffer = bytearray(X.nbytes + 1)
    unaligned = np.frombuffer(buffer, np.float32, X.size, offset=1).reshape(X.shape)
    unaligned[...] = X
    assert not unaligned.flags.aligned
    np.testing.assert_array_equal(ops.mish(unaligned), expected)


def test_negative_and_odd_strides():
    np.testing.assert_array_equal(ops.mish(X[::-1, ::-2]), ops.mish(np.ascontiguousarray(X[::-1, ::-2])))
    packed = np.zeros(5, np.dtype([("tag", np.uint8), ("value", np.float32)]))
    packed["value"] = [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(ops.mish(packed["value"]), ops.mish(np.arange(5, dtype=np.float32)))


def test_read_only_inputs_stay_as_they_are():
    frozen = X.copy()
    frozen.flags.writeable = False
    ops.mish(frozen)
    np.testing.assert_array_equal(frozen, X)


def test_attributes_are_rounded_to_float32_and_checked():
    wide, narrow = (
        ops.swish(X.astype(np.float64), beta=0.1),
        ops.swish(X.astype(np.float64), beta=float(np.float32(0.1))),
    )
    np.testing.assert_array_equal(wide, narrow)
    with pytest.raises(DtypeError, match="attribute beta"):
        ops.swish(X, beta="large")
    with pytest.raises(ArgumentError, match="unknown attribute"):
        ops.swish(X, gamma=1.0)


def test_errors_name_operator_and_argument():
    with pytest.raises(DtypeError, match=r"com\.example::ModSigmoid, argument threshold: wrong dtype"):
        ops.mod_sigmoid(X, np.float64(1))
    with pytest.raises(DtypeError, match="argument x"):
        ops.mish(np.arange(3))
    with pytest.raises(ArgumentError, match=r"com\.example::ModSigmoid"):
        ops.mod_sigmoid(X, np.zeros(5, np.float32))
    with pytest.raises(ArgumentError, match="wrong number of inputs"):
        ops.mod_sigmoid(X)


def test_inputs_by_name():
    threshold = np.float32(0.5)
    np.testing.assert_array_equal(ops.mod_sigmoid(threshold=threshold, x=X), ops.mod_sigmoid(X, threshold))


def test_threads_share_a_kernel():
    sizes = [1, 3, 17, 1000, 4097, 70_000] * 4
    inputs = [np.random.default_rng(n).standard_normal(n).astype(np.float32) for n in sizes]
    expected = [ops.mish(x).tobytes() for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        assert [y.tobytes() for y in pool.map(ops.mish, inputs)] == expected


def test_arrays_go_when_the_call_ends():
    """No cycle of callbacks holds inputs and outputs until the collector comes."""
    ops.mish(X)
    gc.disable()
    try:
        result = ops.mish(X)
        held = weakref.ref(result)
        del result
        assert held() is None
    finally:
        gc.enable()
