"""Kernel operators with a cuda.cu: views, parameters of every kind, dispatch, errors, the teaching example."""

import mmap
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import opforge as of
from examples.tiled_matmul.op import tiled_matmul
from opforge.build import abi, load_library
from opforge.codegen import declaration, has_kernels, kernel_units
from opforge.cuda import ORDERS, emulate_operators
from opforge.errors import ArgumentError, BuildError, OpforgeError, SchemaError
from opforge.frameworks import numpy_host
from opforge.ops import custom_gelu
from opforge.verify.cuda_checks import emulated_sanitized
from opforge.verify.hosts import emulated_host

SOURCE = Path(__file__).parents[2] / "data" / "cuda" / "authored.cu"
RNG = np.random.default_rng(0)

weighted = of.kernel(
    "test.cuda::Weighted",
    '(x: T[*S], bias?: T[n], *more: T[p, q]; factor: float = 2.0, threads: ints = [32], mode: string = "")'
    " -> (y: T[*S])",
    types={"T": of.floating},
    sources=[SOURCE],
    reference=None,
    strided=True,
    differentiable=False,
)


@cache
def library(operator):
    return load_library(emulate_operators([operator]).path)


def run(x, bias=None, more=None, **attributes):
    more = (np.zeros((1, 2), x.dtype),) if more is None else more
    return numpy_host.call(
        weighted, [x, bias, tuple(more)], attributes, library=library(weighted), device=abi.DEVICE_CUDA
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_every_choice_of_dtypes_has_a_kernel(dtype):
    x = RNG.integers(-9, 9, (3, 5)).astype(dtype)
    bias, more = np.arange(5).astype(dtype), [np.zeros((1, 2), dtype), np.full((1, 2), 3, dtype)]
    got = run(x, bias, more, factor=0.5)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(float), 0.5 * x.astype(float) + np.arange(5) + 3)


@pytest.mark.parametrize("view", [lambda a: a.T, lambda a: a[::2, 1:], lambda a: a[0], lambda a: a[0, 0], lambda a: a])
def test_views_have_ranks_sizes_and_strides(view):
    x = view(RNG.standard_normal((6, 7)))
    np.testing.assert_allclose(run(x), 2 * x)


def far_apart(dtype, step):
    """Four elements, `step` apart: their offsets need more than 32 bits. The memory in between is never touched."""
    memory = mmap.mmap(-1, 4 * step * np.dtype(dtype).itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    x = np.frombuffer(memory, dtype)[::step]
    x[:] = [1, 2, 3, 4]
    return x


def test_offsets_beyond_32_bits():
    x = far_apart(np.float32, 2**30)  # 0x4000: MAP_NORESERVE
    np.testing.assert_array_equal(run(x), [2, 4, 6, 8])
    loaded = load_library(emulate_operators([custom_gelu]).path)
    got = numpy_host.call(custom_gelu, [x], {}, library=loaded, device=abi.DEVICE_CUDA)
    np.testing.assert_allclose(got, custom_gelu.reference(x.astype(np.float64)), rtol=1e-6)


def test_what_is_absent_is_not_read_and_empty_tensors_launch_nothing():
    np.testing.assert_array_equal(run(np.ones((2, 2))), np.full((2, 2), 2.0))
    assert run(np.ones((0, 4)), threads=(5000,)).shape == (0, 4)


def test_errors_of_a_launcher():
    with pytest.raises(ArgumentError, match="mode is fail"):
        run(np.ones(3), mode="fail")
    with pytest.raises(ArgumentError, match="x is not dense"):
        run(np.ones((3, 4)).T, mode="dense")
    with pytest.raises(OpforgeError, match="out of memory for scratch"):
        run(np.ones(3), mode="memory")
    with pytest.raises(OpforgeError, match=r"cudaErrorInvalidConfiguration \(9\)(?s:.*)1025 threads per block"):
        run(np.ones(3), threads=(1025,))
    with pytest.raises(OpforgeError, match="a tensor has more than 12 dimensions"):
        run(np.ones((1,) * 13))


def test_what_the_source_must_define_is_said():
    wanted = declaration(weighted, "cuda")
    assert "weighted(opforge::cuda::Context& context, opforge::cuda::View<const T, opforge::kAnyRank> x" in wanted
    assert wanted.endswith("std::string_view mode, opforge::cuda::View<T, opforge::kAnyRank> y)")
    other = of.kernel(
        "test.cuda::Other", "(x: T[n]) -> (y: T[n])", types={"T": of.floating}, sources=[SOURCE], reference=None,
    )  # fmt: skip
    with pytest.raises(BuildError, match=r"other(?s:.*)opforge::cuda::View<T, 1> y"):
        emulate_operators([other])


def test_an_operator_without_a_cuda_source_says_so():
    plain = of.kernel(
        "test.cuda::Plain",
        "(x: T[n]) -> (y: T[n])",
        types={"T": of.floating},
        sources=[SOURCE.parents[3] / "examples" / "tiled_matmul" / "cpu.cc"],
        reference=None,
    )
    assert not has_kernels(plain, "cuda")
    assert has_kernels(tiled_matmul, "cuda")
    with pytest.raises(SchemaError, match=r"without a CUDA source(?s:.*)NAME.cu(?s:.*)cpu.cc"):
        emulate_operators([plain])
    assert "it has no CUDA kernels: name a source" in emulated_host().refuses(plain)


def test_units_include_the_source_and_the_boundary_of_the_device():
    (unit,) = kernel_units([tiled_matmul], "cuda")
    assert unit.name.endswith("tiled_matmul_v1_dispatch.cu")
    assert '#include "opforge/cuda/dispatch.cuh"' in unit.text
    assert "tiled_matmul_entry<__nv_bfloat16>(context, in, out, attributes)" in unit.text


# The teaching example


@pytest.mark.parametrize("order", ORDERS)
def test_the_tiled_matmul_of_any_size_in_every_order(order):
    emulate_operators([tiled_matmul]).load(order)
    try:
        for m, k, n in [(1, 1, 1), (64, 16, 64), (65, 17, 130), (3, 0, 2), (0, 3, 2)]:
            left, right = (RNG.integers(-5, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
            got = numpy_host.call(
                tiled_matmul, [left, right], {}, library=library(tiled_matmul), device=abi.DEVICE_CUDA
            )
            np.testing.assert_array_equal(got, left @ right)
    finally:
        emulate_operators([tiled_matmul]).load()


@pytest.mark.parametrize("mode", ["address", "thread"])
def test_the_tiled_matmul_is_clean_under_sanitizers(mode):
    rows = list(emulated_sanitized(tiled_matmul, [mode], 0))
    assert [row.detail for row in rows if not row.passed] == []
    assert len(rows) == 1
