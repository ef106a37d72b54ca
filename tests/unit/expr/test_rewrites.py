"""Every row of the rewrite tables against mpmath; the exact ones bit by bit; what the stable forms are worth."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

import opforge as of
from opforge.expr import patterns
from opforge.expr.nodes import ValueType, constant, input_, op, postorder
from opforge.expr.reference import evaluate
from opforge.expr.rewrites import EXACT, EXPANSIONS, REWRITES
from opforge.expr.simplify import finish, fuse_fma, simplify
from opforge.expr.trace import Expr
from tests.unit.expr.helpers import exact, formula, relative_error, run_f32

X, Y = Expr(input_(0)), Expr(input_(1))
CONSTANTS = [2.0, 0.5, 3.7, -4.0, 0.1]
POINTS = [(-2.3, 0.7), (-0.4, -1.9), (0.6, 0.2), (1.8, 2.7), (0.9, -0.3), (5.0, 1.1)]


def applications(row):
    """The row's left side for every fitting choice of constants, with what it is rewritten to."""
    letters = sorted({c for c in row.before if c.isalpha() and len(c) == 1} & set("xylhpck"))
    used = [c for c in letters if f"{c}" in _names(row)]
    leaves = {"x": input_(0), "y": input_(1), "l": constant(-0.5), "h": constant(0.8)}
    leaves["p"] = op("gt", input_(0), constant(0.0))
    if "logical" in row.before and "select" not in row.before:
        leaves["x"] = leaves["p"]
    for c, k in itertools.product(CONSTANTS, CONSTANTS):
        binding = {**leaves, "c": constant(c), "k": constant(k)}
        binding = {letter: binding[letter] for letter in used}
        before = patterns._build(row._pattern, binding, ValueType.T, op)
        after = row.apply(before, op)
        if after is not None:
            yield before, after
        if not {"c", "k"} & set(used):
            return


def _names(row):
    import ast

    return {node.id for node in ast.walk(row._pattern) if isinstance(node, ast.Name)}


@pytest.mark.parametrize("row", [*REWRITES, *EXPANSIONS], ids=repr)
def test_rows_keep_the_value(row):
    compared = 0
    for before, after in applications(row):
        for point in POINTS:
            try:
                wanted, got = exact(before, *point), exact(after, *point)
            except ZeroDivisionError:
                continue
            if isinstance(wanted, bool):
                assert wanted == got
            elif isinstance(wanted, mp.mpf):
                # Constants are float64, so products of two of them are rounded there.
                assert relative_error(got, wanted) < 1e-15, (row, point)
            else:
                continue
            compared += 1
    assert compared >= 3


EDGES = np.array([0.0, -0.0, 1.0, -1.0, 1.5, -2.75, 1e-300, 5e-324, 1e300, math.inf, -math.inf, math.nan])


@pytest.mark.parametrize("row", EXACT, ids=repr)
def test_exact_rows_keep_every_bit(row):
    x, y = (a.ravel() for a in np.meshgrid(EDGES, EDGES))
    compared = 0
    for before, after in applications(row):
        wanted, got = evaluate([(before, None), (after, None)], [x, y])
        if wanted.dtype == np.float64:
            np.testing.assert_array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(wanted)[~np.isnan(wanted)])
        np.testing.assert_array_equal(got, wanted)
        compared += 1
    assert compared


def simplified(expression):
    return repr(simplify([expression.node])[0])


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (1 / (1 + of.exp(-X)), of.sigmoid(X)),
        (X / (1 + of.exp(-1.702 * X)), X * of.sigmoid(1.702 * X)),
        (of.exp(X) / (of.exp(X) + 1), of.sigmoid(X)),
        (0.5 * (1 + of.tanh(X)), of.sigmoid(2 * X)),
        ((of.tanh(X) + 1) / 2, of.sigmoid(2 * X)),
        (0.5 + 0.5 * of.tanh(X), of.sigmoid(2 * X)),
        (0.5 * X * (1 + of.tanh(Y)), X * of.sigmoid(2 * Y)),
        (X * 0.5 * (of.tanh(Y) + 1), X * of.sigmoid(2 * Y)),
        (X * (0.5 * (1 + of.tanh(Y))), X * of.sigmoid(2 * Y)),
        (0.5 * (X * (1 + of.tanh(Y))), X * of.sigmoid(2 * Y)),
        ((1 + of.tanh(Y)) * X / 2, X * of.sigmoid(2 * Y)),
        (0.5 * X + 0.5 * X * of.tanh(Y), X * of.sigmoid(2 * Y)),
        (of.log(1 + of.exp(X)), of.softplus(X)),
        (X * of.tanh(of.log(1 + of.exp(X))), X * of.tanh(of.softplus(X))),
        (1 - of.tanh(X) ** 2, 4 * (of.sigmoid(2 * X) * of.sigmoid(-2 * X))),
        (of.sigmoid(X) * (1 - of.sigmoid(X)), of.sigmoid(X) * of.sigmoid(-X)),
        (1 - 1 / (1 + of.exp(X)), of.sigmoid(X)),
        (1 / of.sqrt(X), of.rsqrt(X)),
        (X * X * X, X**3),
        (of.minimum(of.maximum(X, 0), 6), of.clip(X, 0.0, 6.0)),
        (X - (-Y), X + Y),
        (2 * of.pi * 0.5 * X, of.pi * X),
        (X / 8, 0.125 * X),
    ],
)
def test_what_people_write_becomes_its_stable_form(written, wanted):
    assert simplified(written) == simplified(wanted) == repr(wanted.node)


@pytest.mark.parametrize("kept", [X + 0.0, X * 0, X / 3, X - X, X / X, X * Y + X, 0 - X, X + 1 - 1])
def test_what_would_change_a_value_is_kept(kept):
    assert simplified(kept) == repr(kept.node)


def test_rewrites_do_not_overflow_sooner():
    largest = np.float32(3e38)
    for written in (0.5 * X * (1 + of.erf(X / of.sqrt(2))), 0.5 * X * (1 + of.tanh(X)), X / (1 + of.exp(-X))):
        assert run_f32(formula(written.node).program(), largest)[0] == largest


def test_erf_gelu_in_any_association():
    forms = [
        0.5 * X * (1 + of.erf(X / of.sqrt(2))),
        X * 0.5 * (1 + of.erf(X / of.sqrt(2))),
        X * (0.5 * (1 + of.erf(X * of.sqrt(0.5)))),
        X * (1 + of.erf(X / of.sqrt(2))) / 2,
        0.5 * X + 0.5 * X * of.erf(X / of.sqrt(2)),
    ]
    for form in forms:
        assert "erfc(mul(-0.70710678118654" in simplified(form) and "add" not in simplified(form)


def tail_error(expression, lower, upper):
    program = formula(expression.node).program()
    worst = 0.0
    for x in np.linspace(lower, upper, 200).astype(np.float32):
        (got,) = run_f32(program, x)
        worst = max(worst, relative_error(float(got), exact(expression.node, float(x))))
    return worst


def test_gelu_keeps_its_digits_in_the_tail():
    tanh_gelu = 0.5 * X * (1 + of.tanh(of.sqrt(2 / of.pi) * (X + 0.044715 * X**3)))
    erf_gelu = 0.5 * X * (1 + of.erf(X / of.sqrt(2)))
    assert tail_error(tanh_gelu, -6.0, 6.0) < 1e-5
    assert tail_error(erf_gelu, -6.0, 6.0) < 1e-5
    # As written, float32 loses everything there: 1 + tanh(u) is 0.
    u = np.float32(math.sqrt(2 / math.pi)) * (np.float32(-6) + np.float32(0.044715) * np.float32(-216))
    assert np.float32(1) + np.tanh(u) == 0


@pytest.mark.parametrize("slope", [1.0, -1.0])
def test_sigmoid_s_derivative_keeps_its_digits_in_both_tails(slope):
    program = formula(of.sigmoid(slope * X).node).gradient().program()
    assert sum(i.op == "exp" for i in program.instructions) == 1
    assert not any(i.op == "sigmoid" for i in program.instructions)
    for x in (-80.0, -17.0, -1.0, 0.0, 0.3, 20.0, 80.0):
        (got,) = run_f32(program, 1.0, x)
        s = 1 / (1 + mp.exp(-mp.mpf(x) * slope))
        assert relative_error(float(got), slope * s * (1 - s)) < 1e-6
    assert run_f32(program, 1.0, np.inf)[0] == 0 and np.isnan(run_f32(program, 1.0, np.nan)[0])


def test_tanh_s_derivative_keeps_its_digits():
    program = formula(of.tanh(X).node).gradient().program()
    for x in (-20.0, -3.0, 0.1, 9.0):
        (got,) = run_f32(program, 1.0, x)
        assert relative_error(float(got), mp.sech(mp.mpf(x)) ** 2) < 1e-6


def test_constants_fold_in_float64():
    (node,) = simplify([(X * (1 / Expr(constant(3.0)))).node])
    assert repr(node) == f"mul(input0, {1 / 3!r})"
    (power,) = simplify([(Expr(constant(2.0)) ** 0.5 * X).node])
    assert repr(power) == f"mul({2**0.5!r}, input0)"


def test_common_subexpressions_are_one_instruction():
    f = formula((of.exp(X) + 1 / of.exp(X) * of.sin(of.exp(X))).node)
    assert sum(i.op == "exp" for i in f.program().instructions) == 1


def fused(*expressions):
    return [repr(n) for n in fuse_fma([e.node for e in expressions])]


def test_products_fuse_into_the_sum_that_alone_reads_them():
    assert fused(X * Y + 1) == ["fma(input0, input1, 1.0)"]
    assert fused(1 - X * Y) == ["fnma(input0, input1, 1.0)"]
    assert fused(X * Y - 1) == ["fma(input0, input1, -1.0)"]
    assert fused(X * Y - Y) == ["sub(mul(input0, input1), input1)"]
    assert fused(X * 2 + Y * 3) == ["fma(input1, 3.0, mul(input0, 2.0))"]
    assert fused(Expr(op("square", input_(0))) + Y) == ["fma(input0, input0, input1)"]
    product = X * Y
    assert fused(product + 1, product) == ["add(mul(input0, input1), 1.0)", "mul(input0, input1)"]
    assert fused(product + product) == ["add(mul(input0, input1), mul(input0, input1))"]


def test_rewriting_ends_and_is_idempotent():
    expressions = [
        0.5 * X * (1 + of.tanh(X * Y)),
        1 / (1 + of.exp(-X)) ** 2,
        of.log(1 + of.exp(-X)) / (2 * Y) - -X * -Y,
    ]
    for expression in expressions:
        once = simplify([expression.node])
        assert simplify(once) == once
        assert len(list(postorder(finish(once)))) < 40
