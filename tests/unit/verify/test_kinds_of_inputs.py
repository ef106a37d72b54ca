"""Operators with optional and variadic inputs, integers, several outputs and data-dependent shapes pass the check."""

import pytest

import opforge as of
from opforge.verify import check
from opforge.verify.cases import arrays, cases_of, parameters
from tests.unit.verify.faulty import forget

pytestmark = [pytest.mark.compiler, pytest.mark.torch]
pytest.importorskip("jax", reason="needs JAX")

_CC = """
#include "opforge/kernel.h"
using namespace opforge;
template <class T, class I>
Status mixed(Context& context, View<const T, 2> x, View<const I, 1> index, View<const T, 1> bias,
             Views<const T, 1> more, View<T, 1> y, View<I, 1> found) {
  for (int64_t i = 0; i < x.shape(0); ++i) {
    if (index(i) < 0 || index(i) >= x.shape(1)) {
      return context.fail("index[%lld] is %lld", (long long)i, (long long)index(i));
    }
    compute_t<T> sum = x(i, index(i));
    if (bias.present()) sum += compute_t<T>(bias(i));
    for (int k = 0; k < more.size(); ++k) sum += compute_t<T>(more[k](i));
    y(i) = T(sum);
  }
  int64_t count = 0;
  for (int64_t i = 0; i < x.shape(0); ++i) count += index(i) > 0;
  context.allocate(found, {count});
  for (int64_t i = 0, k = 0; i < x.shape(0); ++i) {
    if (index(i) > 0) found(k++) = I(i);
  }
  return kOk;
}
"""

_OP = """
import numpy as np
import opforge as of

def reference(x, index, bias, *more):
    y = x[np.arange(len(x)), index]
    return sum(more, y if bias is None else y + bias), np.flatnonzero(index > 0)

mixed = of.kernel(
    "test.kinds::Mixed",
    "(x: T[m, n], index: I[m], bias?: T[m], *more: T[m]) -> (y: T[m], found: I[_])",
    types={"T": ["f32", "bf16"], "I": of.index}, sources=["cpu.cc"], reference=reference, differentiable=False,
)
"""

_CASES = """
_X = {"x": {"shape": [4, 3], "normal": 1.0}, "index": {"values": [0, 2, 1, 0]}}
_ROW = {"shape": [4], "normal": 1.0}
CASES = [
    {"name": "all", "inputs": {**_X, "bias": _ROW, "more": [_ROW, _ROW]}},
    {"name": "without bias", "inputs": {**_X, "more": [_ROW]}},
]
"""


@pytest.fixture
def mixed(tmp_path):
    """The operator, for one test."""
    (tmp_path / "op.py").write_text(_OP)
    (tmp_path / "cpu.cc").write_text(_CC)
    (tmp_path / "cases.py").write_text(_CASES)
    operator = of.load(tmp_path / "op.py")[0]
    yield operator
    forget(operator)


def test_arrays_of_optional_and_variadic_inputs(mixed):
    types = {name: allowed[0] for name, allowed in mixed.types.items()}
    first, second = (arrays(mixed, case, types) for case in cases_of(mixed))
    assert [p.name for p in parameters(mixed, first)] == ["x", "index", "bias", "more", "more"]
    assert (first[3] != first[4]).any(), "each tensor is drawn anew"
    assert second[2] is None


def test_all_checks_pass(mixed):
    report = check(mixed, isolate=False)
    assert report.passed, "\n".join(map(str, report.failures))
    kinds = {row.check for row in report.rows}
    assert {"schema", "values", "layouts", "boundary", "determinism", "fake kernel"} <= kinds
    assert "gradient" not in kinds, "it is declared not differentiable"
    left_out = {row.host: row.detail for row in report.rows if row.check == "host"}
    assert list(left_out) == ["jax"]
    assert "size depends on data" in left_out["jax"]
