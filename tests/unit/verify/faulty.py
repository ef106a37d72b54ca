"""Throwaway operators with one planted fault each, for the tests of `opforge check`."""

import numpy as np

import opforge as of
from opforge.schema import registry

_CC = """
#include "opforge/kernel.h"
using namespace opforge;
%s
"""

CASES = """
CASES = {
    "Faulty": [
        {"name": "small", "inputs": {"x": {"shape": [3, 40], "normal": 1.0}, "w": {"shape": [40], "normal": 1.0}}}
    ],
    "FaultyGrad": [
        {
            "name": "small",
            "inputs": {
                "g": {"shape": [3], "normal": 1.0},
                "x": {"shape": [3, 40], "normal": 1.0},
                "w": {"shape": [40], "normal": 1.0},
            },
        }
    ],
}
TOLERANCES = {
    "f64": (1e-12, 1e-12, "sums of 40 products"),
    "f32": (1e-5, 1e-5, "sums of 40 products"),
    "f16": (2**-10, 1e-3, "summed in f32, rounded once"),
}
"""

# y = x w, and its gradients by x (outer product) and w (x^T g).
_RIGHT = """
template <class T>
Status faulty(Context& context, View<const T, 2> x, View<const T, 1> w, View<T, 1> y) {
  using R = %(sum)s;
  context.parallel_for(x.shape(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      R sum = 0;
      for (int64_t j = 0; j < x.shape(1); ++j) sum = R(sum + R(R(x(i, j)) * R(w(j))));
      y(i) = T(sum);%(extra)s
    }
  });
  return kOk;
}
template <class T>
Status faulty_grad(Context&, View<const T, 1> g, View<const T, 2> x, View<const T, 1> w, View<T, 2> dx, View<T, 1> dw) {
  using R = compute_t<T>;
  for (int64_t j = 0; j < x.shape(1); ++j) {
    R sum = 0;
    for (int64_t i = 0; i < x.shape(0); ++i) {
      dx(i, j) = T(R(%(factor)s) * R(g(i)) * R(w(j)));
      sum += R(g(i)) * R(x(i, j));
    }
    dw(j) = T(sum);
  }
  return kOk;
}
"""

_OP = """
import numpy as np
import opforge as of

def reference(x, w):
    return x @ w

def reference_grad(g, x, w):
    return {factor} * np.outer(g, w), g @ x

def gradient(inputs, outputs, grads, attrs):
    dx, dw = faulty_grad(grads.y, inputs.x, inputs.w)
    return {{"x": dx, "w": dw}}

{second}

faulty_grad = of.kernel(
    "test.{domain}::FaultyGrad", "(g: T[m], x: T[m, n], w: T[n]) -> (dx: T[m, n], dw: T[n])",
    types={{"T": ["f16", "f32", "f64"]}}, sources=["cpu.cc"], reference=reference_grad, {second_option},
)
faulty = of.kernel(
    "test.{domain}::Faulty", "(x: T[m, n], w: T[n]) -> (y: T[m])",
    types={{"T": ["f16", "f32", "f64"]}}, sources=["cpu.cc"], reference=reference, gradient=gradient,
)
"""

# The gradient of FaultyGrad, up to `sign`: d/dg of <a, dx> + <b, dw> is (a w) + (x b), ...
_SECOND = """
def second(inputs, outputs, grads, attrs):
    return {"g": None, "x": None, "w": None}
"""


def declare(folder, domain, *, sum_type="compute_t<T>", extra="", factor="1", second=False, cc=None, cases=CASES):
    """Write the operator's folder, load it, and return Faulty."""
    folder.mkdir(parents=True)
    source = cc or _RIGHT % {"sum": sum_type, "extra": extra, "factor": factor}
    (folder / "cpu.cc").write_text(_CC % source)
    (folder / "cases.py").write_text(cases)
    options = "gradient=second" if second else "differentiable=False"
    text = _OP.format(domain=domain, factor=factor, second=_SECOND if second else "", second_option=options)
    (folder / "op.py").write_text(text)
    return next(o for o in of.load(folder) if o.name == "Faulty")


def forget(operator):
    """Take the operator and its gradient out of the registry."""
    for other in list(registry.operators(gradients=True).values()):
        if other.domain == operator.domain:
            registry.unregister(other)


def details(report, check):
    """The details of the failed rows of one check."""
    return [row.detail for row in report.rows if row.check == check and not row.passed]


def as_float(values):
    """A float64 array."""
    return np.asarray(values, np.float64)
