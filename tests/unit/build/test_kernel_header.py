"""kernel.h as authors use it: every kind of parameter, optional and variadic inputs, outputs sized by data, halves."""

import subprocess

import ml_dtypes
import numpy as np
import pytest

import opforge as of
from opforge.build.builder import build_library
from opforge.build.plan import plan_library
from opforge.errors import OpforgeError

pytestmark = pytest.mark.compiler


def declare(folder, name, signature, types, cc, options=""):
    """Declare a kernel operator in a folder of its own."""
    folder.mkdir()
    (folder / "cpu.cc").write_text('#include "opforge/kernel.h"\nusing namespace opforge;\n' + cc)
    (folder / "op.py").write_text(
        f"import opforge as of\n{name.lower()} = of.kernel('test.header::{name}', {signature!r}, types={types!r}, "
        f"sources=['cpu.cc'], reference=None{options})\n"
    )
    return of.load(folder)[0]


def test_attributes_of_every_kind(tmp_path):
    signature = (
        "(x: f64[]; a: int, b: float, c: string, d: bool, e: ints, f: floats, g: strings, h: bools) -> (y: f64[8])"
    )
    cc = """
Status attributes(Context&, View<const double, 0> x, int64_t a, double b, std::string_view c, bool d, List<int64_t> e,
                  List<double> f, List<opforge_string> g, List<int64_t> h, View<double, 1> y) {
  double sums[8] = {x() + static_cast<double>(a), b, static_cast<double>(c.size()), d ? 1.0 : 0.0};
  for (int64_t v : e) sums[4] += static_cast<double>(v);
  for (double v : f) sums[5] += v;
  for (const opforge_string& v : g) sums[6] = sums[6] * 10 + static_cast<double>(v.size);
  for (int64_t v : h) sums[7] = sums[7] * 2 + static_cast<double>(v);
  for (int i = 0; i < 8; ++i) y(i) = sums[i];
  return kOk;
}
"""
    operator = declare(tmp_path / "op", "Attributes", signature, {}, cc)
    got = operator(
        np.array(0.5),
        a=2**53 - 1,
        b=0.1,
        c="größe",
        d=True,
        e=[],
        f=[0.5, 0.25],
        g=["", "12345"],
        h=[True, False, True],
    )
    assert got.tolist() == [2.0**53 - 0.5, float(np.float32(0.1)), 7.0, 1.0, 0.0, 0.75, 5.0, 5.0]


def test_optional_and_variadic(tmp_path):
    cc = """
template <class T>
Status several(Context&, View<const T, 1> x, View<const T, 1> bias, Views<const T, 1> more, View<T, 1> y) {
  for (int64_t i = 0; i < x.shape(0); ++i) {
    float sum = x(i);
    if (bias.present()) sum += 100 * bias(i);
    for (int k = 0; k < more.size(); ++k) sum += 10 * more[k](i);
    y(i) = sum;
  }
  return kOk;
}
"""
    operator = declare(
        tmp_path / "op",
        "Several",
        "(x: T[n], bias?: T[n], *more: T[n]) -> (y: T[n])",
        {"T": ["f32", "bf16", "f16"]},
        cc,
    )
    for dtype in (np.float32, ml_dtypes.bfloat16, np.float16):
        one, two = np.ones(3, dtype), np.full(3, 2, dtype)
        assert operator(one, None, two).astype(float).tolist() == [21.0] * 3
        assert operator(one, one, two, one).astype(float).tolist() == [131.0] * 3


def test_output_sized_by_data(tmp_path):
    cc = """
template <class T>
void positive(Context& context, View<const T, 1> x, View<T, 1> y, View<int64_t, 2> where) {
  int64_t count = 0;
  for (T v : x) count += v > 0;
  context.allocate(y, {count});
  context.allocate(where, {count, 1});
  int64_t next = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    if (!(x[i] > 0)) continue;
    y(next) = x[i];
    where(next++, 0) = i;
  }
}
"""
    operator = declare(
        tmp_path / "op", "Positive", "(x: T[n]) -> (y: T[_], where: i64[_, 1])", {"T": ["f32", "i32"]}, cc
    )
    y, where = operator(np.array([3, -1, 0, 7], np.int32))
    assert y.tolist() == [3, 7]
    assert where.tolist() == [[0], [3]]
    assert operator(np.zeros(0, np.float32))[0].shape == (0,)


def test_an_output_that_was_not_allocated_is_an_error(tmp_path):
    cc = "template <class T> void forgets(Context&, View<const T, 1>, View<T, 1>) {}\n"
    operator = declare(tmp_path / "op", "Forgets", "(x: T[n]) -> (y: T[_])", {"T": ["f32"]}, cc)
    with pytest.raises(OpforgeError, match="the kernel did not allocate output 0, whose shape depends on data"):
        operator(np.ones(2, np.float32))


def test_scratch_is_aligned_and_its_lack_is_reported(tmp_path):
    cc = """
Status memory(Context& context, View<const double, 1> x, int64_t count, View<double, 1> y) {
  double* scratch = context.scratch<double>(count);
  y(0) = static_cast<double>(reinterpret_cast<uintptr_t>(scratch) % 64);
  for (int64_t i = 0; i < 4; ++i) scratch[i] = x(0);
  return kOk;
}
"""
    operator = declare(tmp_path / "op", "Memory", "(x: f64[1]; count: int) -> (y: f64[1])", {}, cc)
    assert operator(np.ones(1), count=4).tolist() == [0.0]
    with pytest.raises(OpforgeError, match="out of memory for scratch"):
        operator(np.ones(1), count=2**57)


def test_any_rank_views_and_indexing(tmp_path):
    cc = """
template <class T>
Status corner(Context&, View<const T> x, View<const T, 3> z, View<int64_t, 1> shape, View<T, 1> last) {
  for (int axis = 0; axis < x.ndim(); ++axis) shape(axis) = x.shape(axis);
  last(0) = x[x.size() - 1];
  last(1) = z(1, 0, 2);
  last(2) = static_cast<T>(z.is_dense() ? z.stride(0) : -1);
  return kOk;
}
"""
    signature = "(x: T[*S], z: T[a, b, c]) -> (shape: i64[4], last: T[3])"
    operator = declare(tmp_path / "op", "Corner", signature, {"T": ["f64"]}, cc)
    x, z = np.arange(120.0).reshape(2, 3, 4, 5), np.arange(24.0).reshape(2, 3, 4)
    shape, last = operator(x, z)
    assert shape.tolist() == [2, 3, 4, 5]
    assert last.tolist() == [119.0, 14.0, 12.0]


def test_half_types_round_to_nearest_even_like_numpy(tmp_path):
    cc = """
template <class T>
Status rounds(Context&, View<const float, 1> x, View<const T, 1>, View<T, 1> y, View<float, 1> back) {
  for (int64_t i = 0; i < x.shape(0); ++i) back(i) = y(i) = T(x(i));
  return kOk;
}
"""
    operator = declare(
        tmp_path / "op", "Rounds", "(x: f32[n], like: T[m]) -> (y: T[n], back: f32[n])", {"T": ["f16", "bf16"]}, cc
    )
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32)
    special = np.array(
        [0.0, -0.0, 65504, 65519.99, 65520, 2**-24, 2**-25, 3 * 2**-26, np.inf, -np.inf, np.nan], np.float32
    )
    x = np.concatenate([special, bits.view(np.float32)])
    for dtype in (np.float16, ml_dtypes.bfloat16):
        y, back = operator(x, np.zeros(1, dtype))
        with np.errstate(over="ignore", invalid="ignore"):
            expected = x.astype(dtype)
        nan = np.isnan(x)
        assert np.isnan(y.astype(np.float32))[nan].all()
        np.testing.assert_array_equal(y.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
        np.testing.assert_array_equal(back[~nan], expected.astype(np.float32)[~nan])


def test_strided_kernels_get_the_strides_of_the_caller(tmp_path):
    cc = """
template <class T>
Status stepped(Context&, View<const T, 2> x, View<T, 2> y, View<int64_t, 1> strides) {
  for (int64_t i = 0; i < x.shape(0); ++i) {
    for (int64_t j = 0; j < x.shape(1); ++j) y(i, j) = 2 * x(i, j);
  }
  strides(0) = x.is_dense() ? 0 : x.stride(0);
  strides(1) = x.stride(-1);
  return kOk;
}
"""
    signature, types = "(x: T[m, n]) -> (y: T[m, n], strides: i64[2])", {"T": ["f32"]}
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    strided = declare(tmp_path / "strided", "Stepped", signature, types, cc, ", strided=True, host_name='stepped'")
    y, strides = strided(x.T)
    np.testing.assert_array_equal(y, 2 * x.T)
    assert strides.tolist() == [1, 4]
    dense = declare(tmp_path / "dense", "Copied", signature, types, cc.replace("stepped", "copied"))
    y, strides = dense(x.T)
    np.testing.assert_array_equal(y, 2 * x.T)
    assert strides.tolist() == [0, 1]


def test_a_library_shows_its_table_alone(tmp_path):
    """The standard library's templates have default visibility, whatever the flags say of the author's code."""
    cc = """
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
Status words(Context&, View<const float, 1> x, View<float, 1> y) {
  std::map<int64_t, std::vector<std::string>> held;
  for (int64_t i = 0; i < x.shape(0); ++i) held[i % 3].emplace_back(40, 'a');
  if (held.empty()) throw std::out_of_range("empty");
  for (int64_t i = 0; i < x.shape(0); ++i) y(i) = static_cast<float>(held[i % 3].front().size());
  return kOk;
}
"""
    operator = declare(tmp_path / "op", "Words", "(x: f32[N]) -> (y: f32[N])", {}, cc)
    assert operator(np.ones(4, np.float32)).tolist() == [40.0] * 4
    library = build_library(plan_library([operator]))
    shown = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in shown.splitlines()] == ["opforge_library_v1"]
