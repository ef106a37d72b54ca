"""The emulator: right kernels give right values in every order, planted faults are found, with their lines."""

import ctypes
import re
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from scipy.special import erf

from opforge.cuda import ORDERS, call, emulate, emulator
from opforge.errors import ArgumentError, BuildError

SOURCE = Path(__file__).parents[2] / "data" / "cuda" / "kernels.cu"
LINES = SOURCE.read_text().splitlines()
FAULTS = re.search(r"enum Fault \{(.*?)\};", SOURCE.read_text(), re.DOTALL)[1]
FAULT = {name: number for number, name in enumerate(re.findall(r"\bk[A-Z]\w*", FAULTS))}
RNG = np.random.default_rng(0)


@cache
def built(mode):
    return emulate(SOURCE, mode=mode)


def line_of(text):
    (number,) = [k for k, line in enumerate(LINES, 1) if text in line]
    return f"{SOURCE.resolve()}:{number}"


def gelu(mode="plain", fault="kNone", dtype=np.float32, n=1000, name="f32", **options):
    x = (RNG.standard_normal(n) * 2).astype(dtype)
    y = np.zeros_like(x)
    called = call(built(mode), f"gelu_{name}", x, y, n, np.int32(FAULT[fault]), None, **options)
    return called, x.astype(np.float64), y.astype(np.float64)


def matmul(mode="plain", fault="kNone", **options):
    m, n, k = 45, 37, 50
    left, right = RNG.integers(-6, 6, (m, k)).astype(np.float32), RNG.integers(-6, 6, (k, n)).astype(np.float32)
    out = np.zeros((m, n), np.float32)
    sizes = [np.int32(size) for size in (m, n, k, FAULT[fault])]
    return call(built(mode), "matmul_16", left, right, out, *sizes, None, **options), out, left @ right


def total(mode="plain", fault="kNone", n=5000, **options):
    out = np.zeros(1, np.float32)
    ones = np.ones(n, np.float32)
    called = call(built(mode), "total_f32", ones, out, np.int32(n), np.int32(FAULT[fault]), None, **options)
    return called, out[0]


@pytest.mark.parametrize("order", ORDERS)
def test_right_kernels_compute_right_values_in_every_order(order):
    called, x, y = gelu(order=order)
    assert called.ok
    np.testing.assert_allclose(y, 0.5 * x * (1 + erf(x / np.sqrt(2))), rtol=1e-5, atol=1e-6)
    called, out, expected = matmul(order=order)
    assert called.ok
    np.testing.assert_array_equal(out, expected)
    called, out = total(order=order)
    assert called.ok
    assert out == 5000


@pytest.mark.parametrize(("dtype", "name", "step"), [(np.float16, "f16", 2**-11), (ml_dtypes.bfloat16, "bf16", 2**-8)])
def test_halves_round_once(dtype, name, step):
    called, x, y = gelu(dtype=dtype, name=name, n=3000)
    assert called.ok
    np.testing.assert_allclose(y, 0.5 * x * (1 + erf(x / np.sqrt(2))), rtol=step * 1.01, atol=4e-7)  # 1 + erf in f32


@pytest.mark.parametrize("mode", ["address", "thread"])
def test_right_kernels_raise_no_alarm(mode):
    for called in (gelu(mode)[0], matmul(mode)[0], total(mode, n=2000)[0]):
        assert called.ok, called.words


def test_what_warps_do_together():
    out = np.zeros((64, 12), np.int32)
    assert call(built("plain"), "warps_64", out, None, order="random").ok
    lane = np.arange(64) % 32
    half = lane // 16
    got = {k: out[:, k].astype(np.uint32) for k in range(12)}
    np.testing.assert_array_equal(got[0], 5)
    np.testing.assert_array_equal(got[1], np.where(lane % 8 >= 3, lane - 3, lane))
    np.testing.assert_array_equal(got[2], np.where(lane % 16 < 15, lane + 1, lane))
    np.testing.assert_array_equal(got[3], lane ^ 7)
    np.testing.assert_array_equal(got[4], sum(1 << k for k in range(0, 32, 3)))
    np.testing.assert_array_equal(got[5], np.where(half == 0, 0xFFF0, 11))
    np.testing.assert_array_equal(got[6], np.where(half == 0, sum(range(16)), sum(range(16, 32))))
    np.testing.assert_array_equal(got[7], [sum(1 << k for k in range(m, 32, 4)) for m in lane % 4])
    np.testing.assert_array_equal(got[8], 8)
    np.testing.assert_array_equal(got[9], 3)
    np.testing.assert_array_equal(got[10], 8 + 31 + 4 + 1)
    np.testing.assert_array_equal(got[11], 31)


def test_atomic_operations():
    n = 1000
    out = np.array([0, 0, 5, 0, 0, 0], np.uint32)
    assert call(built("plain"), "count_n", out, np.int32(n), None, order="reverse").ok
    assert out.tolist() == [n, n - 1, 0, n % 7, 2**32 - 1, 2 * n]


def test_vector_types_and_launches_in_members_over_several_lines():
    x, y = np.arange(400, dtype=np.float32), np.zeros(400, np.float32)
    assert call(built("plain"), "scaled_f32", x, y, np.int32(400), None).ok
    np.testing.assert_array_equal(y, 2.5 * x)


def test_an_empty_grid_of_the_authors_launcher_returns_early():
    assert gelu(n=0)[0].ok


# Faults


def test_a_write_beyond_the_end_is_found_with_its_line():
    called = gelu("address", "kBeyond")[0]
    (finding,) = called.findings
    assert finding.what == "heap-buffer-overflow"
    assert line_of("const float v = (float)x[i];") in finding.places


def test_a_write_beyond_a_shared_array_is_found_with_its_line():
    (finding,) = matmul("address", "kSharedBeyond")[0].findings
    assert "index 16 out of bounds" in finding.what
    assert finding.places == (line_of("// fault: shared"),)


def test_an_overflow_of_an_int_is_found_with_its_line():
    (finding,) = total("address", "kOverflow")[0].findings
    assert "signed integer overflow" in finding.what
    assert finding.places == (line_of("// fault: overflow"),)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fault", ["kNoBarrierBefore", "kNoBarrierAfter"])
def test_a_missing_barrier_gives_wrong_values_in_every_order(fault, order):
    _, out, expected = matmul("plain", fault, order=order)
    assert not np.array_equal(out, expected)


@pytest.mark.parametrize("fault", ["kNoBarrierBefore", "kNoBarrierAfter"])
def test_a_missing_barrier_is_a_race_with_both_lines(fault):
    called = matmul("thread", fault)[0]
    assert {finding.what for finding in called.findings} == {"data race"}
    for finding in called.findings:
        files = {place.rpartition(":")[0].rpartition("/")[2] for place in finding.places}
        assert files == {"kernels.cu", "tiles.cuh"}  # where a tile is used, and where it is loaded
        assert line_of("// fault: race") in finding.places
        assert len(set(finding.threads)) == 2
        assert all(thread.startswith("block (") for thread in finding.threads)


def test_an_update_across_blocks_without_an_atomic_is_a_race():
    assert total("plain", "kNotAtomic")[0].ok  # blocks run one after another, so that values are right
    (finding,) = total("thread", "kNotAtomic", n=2000)[0].findings
    assert finding.what == "data race"
    assert set(finding.places) == {line_of("// fault: atomic")}
    blocks = [re.match(r"block \((\d+)", thread)[1] for thread in finding.threads]
    assert blocks[0] != blocks[1]


@pytest.mark.parametrize("mode", ["plain", "address", "thread"])
@pytest.mark.parametrize(
    ("run", "fault", "words"),
    [
        (matmul, "kDivergent", "16 of 256 threads have returned while 240 wait in __syncthreads at line"),
        (matmul, "kTwoBarriers", "threads wait in different __syncthreads: line"),
        (total, "kWrongMask", "for lane 16 of its mask, which has returned"),
        (total, "kOtherMask", "lanes 16 and 1 meet in different warp operations or masks"),
    ],
)
def test_threads_that_miss_each_other_are_an_error_of_the_launch(run, fault, words, mode):
    called = run(mode, fault)[0]
    assert called.status == 719
    (finding,) = called.findings
    assert words in finding.what
    assert "block (0, 0, 0): " in finding.what


@pytest.mark.parametrize(
    ("grid", "block", "shared", "allowed", "words"),
    [
        (1, 1025, 0, 0, "1025 threads per block; CUDA has at most 1024"),
        (0, 32, 0, 0, "a grid or block of size 0"),
        (1, 0, 0, 0, "a grid or block of size 0"),
        (1, 32, 49153, 0, "49153 bytes of dynamic shared memory"),
        (1, 32, 65536, 70000, None),
        (1, 32, 163840, 163840, None),
    ],
)
def test_limits_of_a_launch(grid, block, shared, allowed, words):
    called = call(built("plain"), "shape", *map(np.int32, (grid, block, shared, allowed)), None)
    if words is None:
        assert called.ok
    else:
        assert called.status == 9
        assert words in str(called.findings[0])


def test_what_cannot_be_passed_or_chosen_says_so():
    with pytest.raises(ArgumentError, match=r"cannot be passed to a launcher(?s:.*)NumPy array(?s:.*)str"):
        call(built("plain"), "gelu_f32", "x")
    with pytest.raises(ArgumentError, match=r"no such order(?s:.*)forward, reverse, random(?s:.*)sideways"):
        call(built("plain"), "warps_64", None, None, order="sideways")
    with pytest.raises(ArgumentError, match=r"no such mode(?s:.*)plain, address, thread"):
        emulate(SOURCE, mode="memory")


def test_a_kernel_that_does_not_compile_names_the_authors_line(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text("#include <cuda_runtime.h>\n\n__global__ void k(float* x) {\n  x[threadIdx.x] = missing;\n}\n")
    with pytest.raises(BuildError, match=rf"missing(?s:.*){re.escape(str(source))}:4"):
        emulate(source)


def test_a_launcher_that_crashes_is_a_finding(tmp_path):
    source = tmp_path / "crash.cu"
    source.write_text('#include <stdlib.h>\nextern "C" int crash() { abort(); }\n')
    called = call(emulate(source), "crash")
    assert called.status is None
    assert "the process ended with status" in called.findings[0].what


def test_the_scheduler_is_compiled_once_and_each_library_has_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path / "cache"))
    compiled, compile_units = [], emulator.compile_units

    def noted(compiler, units, *others):
        compiled.extend(unit.name for unit in units)
        return compile_units(compiler, units, *others)

    monkeypatch.setattr(emulator, "compile_units", noted)
    libraries = []
    for name in ("one", "two"):
        source = tmp_path / f"{name}.cu"
        source.write_text(f'extern "C" int {name}() {{ return 1; }}\n')
        libraries.append(emulate(source).load())
    assert sorted(compiled) == ["0_one.cpp", "0_two.cpp", "scheduler.cpp"]
    first, second = (ctypes.cast(one.opforge_cuda_order, ctypes.c_void_p).value for one in libraries)
    assert first != second


def test_a_million_threads(tmp_path):
    x = np.ones(1 << 20, np.float32)
    y = np.zeros_like(x)
    assert call(built("plain"), "gelu_f32", x, y, x.size, np.int32(0), None).ok
    np.testing.assert_allclose(y, 0.8413447, rtol=1e-6)
