"""Throwaway operators with one planted fault each, for the tests of `opforge stress`; the kernels are built once."""

from pathlib import Path

_OP = """
import numpy as np
import opforge as of

KINDS = ["Sound", "Leak", "Race", "Drift", "Crash", "Hang"]
for kind in KINDS:
    of.kernel(
        f"test.stress::{kind}", "(x: T[n]) -> (y: T[n])", types={"T": ["f32"]}, sources=["cpu.cc"],
        reference=lambda x: 2 * x, differentiable=False,
    )
"""

_CASES = """
CASES = {
    kind: [{"name": f"n={n}", "inputs": {"x": {"shape": [n], "normal": 1.0}}} for n in (300, 7, 1)]
    for kind in ("Sound", "Leak", "Race", "Drift", "Crash", "Hang")
}
"""

_CC = """
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <atomic>
#include <chrono>
#include <thread>

#include "opforge/kernel.h"
using opforge::Context;
using opforge::Status;
using opforge::View;

namespace {
template <class T>
void twice(View<const T, 1> x, View<T, 1> y) {
  for (int64_t i = 0; i < x.shape(0); ++i) y(i) = x(i) + x(i);
}
std::atomic<int> calls{0};
std::atomic<void*> kept{nullptr};
float shared[512];
}  // namespace

template <class T>
Status sound(Context&, View<const T, 1> x, View<T, 1> y) {
  twice(x, y);
  return opforge::kOk;
}

template <class T>
Status leak(Context&, View<const T, 1> x, View<T, 1> y) {
  twice(x, y);
  void* lost = std::malloc(2048);
  std::memset(lost, 1, 2048);
  kept = lost;  // the compiler may not drop what is stored
  return opforge::kOk;
}

// Scratch that all calls share: two at a time write over each other's. The pause makes that certain on any machine.
template <class T>
Status race(Context&, View<const T, 1> x, View<T, 1> y) {
  for (int64_t i = 0; i < x.shape(0); ++i) shared[i] = x(i);
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  for (int64_t i = 0; i < x.shape(0); ++i) y(i) = T(const_cast<volatile float*>(shared)[i]) + x(i);
  return opforge::kOk;
}

template <class T>
Status drift(Context&, View<const T, 1> x, View<T, 1> y) {
  twice(x, y);
  y(0) += T(calls++ % 1000);
  return opforge::kOk;
}

template <class T>
Status crash(Context&, View<const T, 1> x, View<T, 1> y) {
  twice(x, y);
  if (calls++ > 200) std::raise(SIGSEGV);
  return opforge::kOk;
}

template <class T>
Status hang(Context&, View<const T, 1> x, View<T, 1> y) {
  twice(x, y);
  if (calls++ > 200) std::this_thread::sleep_for(std::chrono::hours(1));
  return opforge::kOk;
}
"""


def write(folder: Path) -> Path:
    """Write the operators' folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "op.py").write_text(_OP)
    (folder / "cases.py").write_text(_CASES)
    (folder / "cpu.cc").write_text(_CC)
    return folder
