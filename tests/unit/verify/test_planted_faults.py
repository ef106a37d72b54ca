"""`check` finds each kind of fault that custom operators have, and says it in words that help."""

import numpy as np
import pytest

import opforge as of
from opforge.verify import check
from opforge.verify._derivative_checks import gradient
from opforge.verify._operator_checks import boundary, values
from opforge.verify.hosts import Host, hosts
from tests.unit.verify.faulty import declare, details, forget

pytestmark = [pytest.mark.compiler, pytest.mark.planted]


def report_of(folder, domain, **options):
    operator = declare(folder, domain, **options)
    try:
        return check(operator, level="quick", isolate=False)
    finally:
        forget(operator)


def test_a_right_operator_passes(tmp_path):
    report = report_of(tmp_path / "op", "right")
    assert report.passed, report.failures
    kinds = {row.check for row in report.rows}
    assert kinds == {
        "schema", "values", "drawn", "boundary", "gradient", "gradient shapes", "second derivative", "determinism"
    }  # fmt: skip


def test_wrong_gradient(tmp_path):
    # The reference of the gradient operator has the same mistake, as when both come from one wrong derivation.
    report = report_of(tmp_path / "op", "gradient", factor="2")
    (text,) = details(report, "gradient")
    assert "the derivative by x along a random direction is" in text
    assert "finite differences of the reference give" in text
    assert "it is 2 times what it should be" in text
    assert not details(report, "values")


def test_sum_in_half_precision(tmp_path):
    report = report_of(tmp_path / "op", "accumulation", sum_type="T")
    (text,) = details(report, "values")
    assert "max |error|" in text
    assert "summed in f32, rounded once" in text, "the tolerance's reason is shown"
    assert "are sums or products formed in half precision? compute in opforge::compute_t<T>" in text
    assert {row.dtype for row in report.failures} >= {"f16"}


def test_double_through_float(tmp_path):
    report = report_of(tmp_path / "op", "float", sum_type="float")
    (text,) = details(report, "values")
    assert "does something pass through float? compute in opforge::compute_t<T>" in text
    assert {row.dtype for row in report.failures if row.check == "values"} == {"f64"}


def test_state_between_calls(tmp_path):
    extra = "\n      static int calls = 0; if (++calls % 7 == 0) y(i) = T(R(y(i)) * R(1.0009765625));"
    report = report_of(tmp_path / "op", "state", extra=extra)
    texts = details(report, "determinism")
    assert any("elements differ" in text for text in texts)
    assert any("the kernel keeps state between calls" in text for text in texts)
    assert any("kernels must have no mutable globals or statics" in text for text in texts)


def test_output_not_written(tmp_path):
    cc = """
template <class T>
Status faulty(Context&, View<const T, 2> x, View<const T, 1> w, View<T, 1> y) {
  using R = compute_t<T>;
  for (int64_t i = 0; i < x.shape(0); ++i) {
    R sum = 0;
    for (int64_t j = 0; j < x.shape(1); ++j) sum += R(x(i, j)) * R(w(j));
    if (i + 1 < x.shape(0)) y(i) = T(sum);
  }
  return kOk;
}
template <class T>
Status faulty_grad(Context&, View<const T, 1>, View<const T, 2>, View<const T, 1>, View<T, 2>, View<T, 1>) {
  return kOk;
}
"""
    report = report_of(tmp_path / "op", "unwritten", cc=cc)
    rows = [row for row in report.failures if row.case == "every element written"]
    assert len(rows) == 3, "each dtype"
    assert all("at [2]: nan, then" in row.detail for row in rows)
    assert all("the kernel leaves elements of its output unwritten" in row.detail for row in rows)


def test_nan_dropped(tmp_path):
    extra = "\n      if (!(R(y(i)) == R(y(i)))) y(i) = T(0);"
    report = report_of(tmp_path / "op", "nan", extra=extra)
    texts = details(report, "boundary")
    assert len(texts) == 12, "first and last element of two inputs, three dtypes"
    assert all("NaN or infinity at other places: " in text for text in texts)
    assert all("write them so that NaN arrives, or declare nan='ignore'" in text for text in texts)
    assert any("NaN first in x" in row.case for row in report.failures)


def test_wrong_second_derivative(tmp_path):
    report = report_of(tmp_path / "op", "second", second=True)
    (text,) = details(report, "second derivative")
    assert "the derivative of order 2 by 'g' is wrong" in text
    assert "gradient operator test.second::FaultyGrad" in text
    assert "correct the gradient= that test.second::FaultyGrad declares" in text
    assert not details(report, "gradient"), "the first derivative is right"


def test_gradient_of_the_wrong_shape(tmp_path):
    operator = declare(tmp_path / "op", "shape")
    numpy = hosts(["numpy"])[0]

    def wide(op, arrays, grads, attributes):
        dx, dw = numpy.gradients(op, arrays, grads, attributes)
        return [dx, np.broadcast_to(dw, dx.shape)]  # not summed back to the shape of w

    try:
        rows = list(gradient(operator, Host("liar", numpy.compute, wide), 0))
    finally:
        forget(operator)
    (row,) = rows
    assert not row.passed
    assert "the gradient of 'w' has the wrong shape" in row.detail
    assert "expected: (40,)" in row.detail
    assert "sum it over the broadcast dimensions" in row.detail


def test_strides_not_honoured(tmp_path):
    operator = declare(tmp_path / "op", "strides")
    numpy = hosts(["numpy"])[0]

    def dense(op, arrays, attributes):
        # Reads memory in order, whatever the strides say: what a kernel does that takes data pointers alone.
        def blind(array):
            base = array if array.base is None else array.base
            memory = np.asarray(base).reshape(-1)
            return np.resize(memory, array.size).reshape(array.shape)

        return numpy.compute(op, [None if a is None else blind(a) for a in arrays], attributes)

    try:
        rows = list(values(operator, Host("blind", dense, numpy.gradients), 3, 0))
    finally:
        forget(operator)
    bad = [row for row in rows if not row.passed]
    assert {row.check for row in bad} == {"layouts"}
    assert any("x transposed" in row.case for row in bad)
    assert any("x sliced" in row.case for row in bad)
    assert all("dense arrays are right, so the strides of the" in row.detail for row in bad)


def test_formula_host_that_drops_nan():
    operator = of.load("opforge.ops:Swish")[0]
    numpy = hosts(["numpy"])[0]

    def fast_math(op, arrays, attributes):
        return [np.nan_to_num(out) for out in numpy.compute(op, arrays, attributes)]

    rows = [r for r in boundary(operator, Host("fast", fast_math, numpy.gradients), 0) if r.dtype in ("f32", "f64")]
    assert rows
    assert all(not row.passed for row in rows)
    assert all("NaN or infinity at other places" in row.detail for row in rows)


def test_kernel_without_cases_says_where_they_belong(tmp_path):
    operator = declare(tmp_path / "op", "cases", cases="CASES = {}\n")
    try:
        report = check(operator, level="quick", isolate=False)
    finally:
        forget(operator)
    texts = details(report, "schema")
    assert any("the operator has no cases" in text and str(tmp_path / "op" / "op.py") in text for text in texts)
    assert len({row.detail for row in report.failures}) == len(report.failures), "said once, not by every part"
