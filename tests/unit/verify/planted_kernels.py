"""Throwaway kernel operators with one planted fault each; all of them are compiled as one library."""

CC = """
#include "opforge/kernel.h"
using namespace opforge;

// Reads memory in order although it declares that it takes any strides.
template <class T>
Status blind(Context&, View<const T, 2> x, View<T, 2> y) {
  for (int64_t i = 0; i < x.size(); ++i) y[i] = x.data()[i];
  return kOk;
}

// Takes every index for one of 32 bits.
template <class T, class I>
Status narrow(Context&, View<const T, 1> x, View<const I, 1> index, View<T, 1> y) {
  const auto* narrow = reinterpret_cast<const int32_t*>(index.data());
  for (int64_t i = 0; i < index.shape(0); ++i) y(i) = narrow[i] >= 0 && narrow[i] < x.shape(0) ? x(narrow[i]) : T(0);
  return kOk;
}

// Reads wherever an index points.
template <class T, class I>
Status trusting(Context&, View<const T, 1> x, View<const I, 1> index, View<T, 1> y) {
  for (int64_t i = 0; i < index.shape(0); ++i) {
    y(i) = x(index(i));  // unchecked
  }
  return kOk;
}

// Refuses tensors without elements.
template <class T>
Status hungry(Context& context, View<const T, 2> x, View<T, 1> y) {
  if (x.size() == 0) return context.fail("invalid configuration: %lld blocks", (long long)x.size());
  for (int64_t i = 0; i < x.shape(0); ++i) {
    compute_t<T> sum = 0;
    for (int64_t j = 0; j < x.shape(1); ++j) sum += x(i, j);
    y(i) = T(sum);
  }
  return kOk;
}

// Writes its input.
template <class T>
Status greedy(Context&, View<const T, 1> x, View<T, 1> y) {
  for (int64_t i = 0; i < x.shape(0); ++i) {
    y(i) = x(i) + T(1);
    const_cast<T&>(x(i)) = T(0);
  }
  return kOk;
}

// Computes an offset in 32 bits, which some sizes overflow; the sum itself is right.
template <class T>
Status overflowing(Context&, View<const T, 1> x, View<T, 1> y) {
  const int scale = 500000000;
  for (int i = 0; i < int(x.shape(0)); ++i) {
    volatile int offset = 0;
    offset = scale * (i + 1);  // 32 bits
    y(i) = x(i) + T(0 * (offset & 1));
  }
  return kOk;
}

// One element past the end.
template <class T>
Status beyond(Context&, View<const T, 1> x, View<T, 1> y) {
  volatile T last = T(0);
  for (int64_t i = 0; i <= x.shape(0); ++i) {
    last = x.data()[i];  // one too many
    if (i < x.shape(0)) y(i) = last;
  }
  return kOk;
}

// Chunks add to one variable.
template <class T>
Status racing(Context& context, View<const T, 1> x, View<T, 1> y) {
  double total = 0;
  context.parallel_for(x.shape(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      total += double(x(i));  // shared
      y(i) = x(i);
    }
  });
  return total < -1e300 ? context.fail("no") : kOk;
}

// y = sum of more; the gradient of each of `more` is g, the declaration says 2 g.
template <class T>
Status gathered(Context&, Views<const T, 1> more, View<T, 1> y) {
  for (int64_t i = 0; i < y.shape(0); ++i) {
    compute_t<T> sum = 0;
    for (int k = 0; k < more.size(); ++k) sum += more[k](i);
    y(i) = T(sum);
  }
  return kOk;
}
template <class T>
Status gathered_grad(Context&, View<const T, 1> g, Views<const T, 1> more, Views<T, 1> d) {
  for (int k = 0; k < more.size(); ++k) {
    for (int64_t i = 0; i < g.shape(0); ++i) d[k](i) = T(2) * g(i);
  }
  return kOk;
}
"""

OP = """
import numpy as np
import opforge as of

T = {"T": ["f32", "f64"]}
TI = {**T, "I": of.index}

def declare(name, signature, reference, types=T, **options):
    return of.kernel(f"test.planted::{name}", signature, types=types, sources=["cpu.cc"], reference=reference,
                     **{"differentiable": False, **options})

same = lambda x: x
blind = declare("Blind", "(x: T[m, n]) -> (y: T[m, n])", same, strided=True)
narrow = declare("Narrow", "(x: T[n], index: I[m]) -> (y: T[m])", lambda x, index: x[index], TI)
trusting = declare("Trusting", "(x: T[n], index: I[m]) -> (y: T[m])", lambda x, index: x[index], TI)
hungry = declare("Hungry", "(x: T[m, n]) -> (y: T[m])", lambda x: x.sum(1))
greedy = declare("Greedy", "(x: T[n]) -> (y: T[n])", lambda x: x + 1)
overflowing = declare("Overflowing", "(x: T[n]) -> (y: T[n])", same)
beyond = declare("Beyond", "(x: T[n]) -> (y: T[n])", same)
racing = declare("Racing", "(x: T[n]) -> (y: T[n])", same)
gathered_grad = declare("GatheredGrad", "(g: T[n], *more: T[n]) -> (*d: T[n])",
                        lambda g, *more: tuple(2 * g for _ in more))
gathered = declare("Gathered", "(*more: T[n]) -> (y: T[n])", lambda *more: sum(more), differentiable=True,
                   gradient=lambda inputs, outputs, grads, attrs: {"more": gathered_grad(grads.y, inputs.more)})
"""

CASES = """
_VECTOR = {"inputs": {"x": {"shape": [40], "normal": 1.0}}, "name": "vector"}
_MATRIX = {"inputs": {"x": {"shape": [6, 5], "normal": 1.0}}, "name": "matrix"}
_INDEXED = {"inputs": {"x": {"shape": [7], "normal": 1.0}, "index": {"values": [6, 0, 3]}}, "name": "indexed"}
_ROWS = [{"shape": [5], "normal": 1.0}] * 3
CASES = {
    "Blind": [_MATRIX], "Hungry": [_MATRIX], "Narrow": [_INDEXED], "Trusting": [_INDEXED], "Greedy": [_VECTOR],
    "Overflowing": [_VECTOR], "Beyond": [_VECTOR], "Racing": [_VECTOR],
    "Gathered": [{"inputs": {"more": _ROWS}, "name": "three"}],
    "GatheredGrad": [{"inputs": {"g": _ROWS[0], "more": _ROWS}, "name": "three"}],
}
"""


def write(folder):
    """Write the package."""
    folder.mkdir(parents=True)
    (folder / "cpu.cc").write_text(CC)
    (folder / "op.py").write_text(OP)
    (folder / "cases.py").write_text(CASES)
    return folder
