"""Every public function: values against mpmath, edge values, plain numbers, NumPy's functions on traced values."""

import math

import mpmath as mp
import numpy as np
import pytest

import opforge as of
from opforge.errors import DtypeError
from opforge.expr import functions
from opforge.expr._generated.opcodes import OPCODES
from opforge.expr.exact import MPMATH
from opforge.expr.nodes import ValueType, input_
from opforge.expr.reference import evaluate, evaluate_exactly
from opforge.expr.semantics import NUMPY
from opforge.expr.trace import Expr

INF, NAN = math.inf, math.nan
ALL = [-700.0, -30.5, -3.25, -1.0, -0.7, -0.5, -1e-3, -1e-12, 1e-12, 1e-3, 0.3, 0.5, 0.99, 1.0, 2.5, 7.5, 30.5, 700.0]
UNIT = [v for v in ALL if abs(v) < 1]
POSITIVE = [v for v in ALL if v > 0]
MODEST = [v for v in ALL if abs(v) < 20]
DOMAIN = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt"), POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh"), UNIT),
    "log1p": [v for v in ALL if v > -1],
    "acosh": [v for v in ALL if v >= 1],
    **dict.fromkeys(("sin", "cos", "tan", "erf", "erfc"), MODEST),
}
UNARY = [
    name
    for name in functions.OPERATIONS
    if name in OPCODES and OPCODES[name].arity == 1 and OPCODES[name].kind in ("UNARY", "COMPARE")
]
PAIRS = [(-2.5, 0.7), (3.0, -1.5), (0.4, 2.25), (5.5, 5.5), (-7.0, -2.0), (1e-3, 40.0)]


def close(got, wanted, bound=4e-15):
    assert abs(mp.mpf(float(got)) - wanted) <= bound * max(abs(wanted), mp.mpf("1e-300")), (got, wanted)


@pytest.mark.parametrize("name", UNARY)
def test_unary_against_mpmath(name):
    node = getattr(of, name)(Expr(input_(0))).node
    for x in DOMAIN.get(name, ALL):
        wanted = evaluate_exactly(node, [x])
        plain = getattr(of, name)(x)
        (traced,) = evaluate([(node, None)], [np.float64(x)])
        assert plain == traced.item()
        if isinstance(plain, bool):
            assert plain == bool(wanted)
        elif abs(wanted) > 1e308:
            assert abs(plain) == INF
        else:
            close(plain, wanted)


@pytest.mark.parametrize("name", ["pow", "atan2", "minimum", "maximum", "mod", "fmod"])
def test_binary_against_mpmath(name):
    node = getattr(of, name)(Expr(input_(0)), Expr(input_(1))).node
    for x, y in PAIRS:
        if name == "pow":
            x = abs(x)
        close(getattr(of, name)(x, y), evaluate_exactly(node, [x, y]))


# Function, arguments, result: what IEEE 754 and C's mathematics say.
EDGES = [
    ("exp", (-INF,), 0.0), ("exp", (INF,), INF), ("exp2", (-INF,), 0.0), ("expm1", (-0.0,), -0.0),
    ("expm1", (-INF,), -1.0), ("log", (0.0,), -INF), ("log", (-1.0,), NAN), ("log2", (8.0,), 3.0),
    ("log10", (INF,), INF), ("log1p", (-1.0,), -INF), ("log1p", (-0.0,), -0.0), ("sqrt", (-0.0,), -0.0),
    ("sqrt", (-1.0,), NAN), ("rsqrt", (0.0,), INF), ("cbrt", (-8.0,), -2.0), ("square", (-INF,), INF),
    ("reciprocal", (-0.0,), -INF), ("pow", (0.0, 0.0), 1.0), ("pow", (NAN, 0.0), 1.0), ("pow", (-2.0, 3.0), -8.0),
    ("pow", (-2.0, 0.5), NAN), ("pow", (0.0, -1.0), INF), ("sin", (INF,), NAN), ("sin", (-0.0,), -0.0),
    ("asin", (1.5,), NAN), ("acos", (1.0,), 0.0), ("atan", (-INF,), -math.pi / 2), ("atan2", (0.0, -1.0), math.pi),
    ("atan2", (-0.0, -1.0), -math.pi), ("sinh", (-INF,), -INF), ("cosh", (-INF,), INF), ("tanh", (INF,), 1.0),
    ("tanh", (-0.0,), -0.0), ("asinh", (-INF,), -INF), ("acosh", (0.5,), NAN), ("atanh", (1.0,), INF),
    ("erf", (-INF,), -1.0), ("erfc", (INF,), 0.0), ("erfc", (-INF,), 2.0), ("sigmoid", (-INF,), 0.0),
    ("sigmoid", (INF,), 1.0), ("sigmoid", (0.0,), 0.5), ("softplus", (-INF,), 0.0), ("softplus", (INF,), INF),
    ("softplus", (1000.0,), 1000.0), ("relu", (NAN,), NAN), ("relu", (-1.0,), 0.0), ("relu", (INF,), INF),
    ("abs", (-0.0,), 0.0), ("abs", (-INF,), INF), ("sign", (-0.0,), -0.0), ("sign", (NAN,), NAN),
    ("sign", (-INF,), -1.0), ("floor", (-0.5,), -1.0), ("ceil", (-0.5,), -0.0), ("round", (2.5,), 2.0),
    ("round", (-0.5,), -0.0), ("round", (3.5,), 4.0), ("trunc", (-2.7,), -2.0), ("minimum", (NAN, 1.0), NAN),
    ("minimum", (1.0, NAN), NAN), ("maximum", (NAN, 1.0), NAN), ("maximum", (-INF, 1.0), 1.0),
    ("clip", (NAN, 0.0, 1.0), NAN), ("clip", (INF, 0.0, 1.0), 1.0), ("clip", (2.0, 3.0, 1.0), 1.0),
    ("mod", (-7.0, 3.0), 2.0), ("mod", (7.0, -3.0), -2.0), ("fmod", (-7.0, 3.0), -1.0), ("fmod", (7.0, -3.0), 1.0),
    ("mod", (1.0, 0.0), NAN), ("isnan", (NAN,), True), ("isnan", (INF,), False), ("isinf", (-INF,), True),
    ("where", (True, 1.0, NAN), 1.0), ("where", (False, NAN, 2.0), 2.0), ("logical_and", (True, False), False),
    ("logical_or", (True, False), True), ("logical_xor", (True, True), False), ("logical_not", (True,), False),
    ("cast", (3.9, "i32"), 3), ("cast", (-3.9, "i8"), -3), ("cast", (NAN, "i64"), 0),
    ("cast", (INF, "i64"), 2**63 - 1), ("cast", (-INF, "i32"), -(2**31)), ("cast", (1e30, "u8"), 255),
    ("cast", (-5.0, "u8"), 0), ("cast", (0.1, "f32"), float(np.float32(0.1))), ("cast", (NAN, "bool"), True),
    ("cast", (-0.0, "bool"), False),
]  # fmt: skip


def same(got, wanted):
    if isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(got)
    return got == wanted and math.copysign(1, got) == math.copysign(1, wanted) and isinstance(got, type(wanted))


@pytest.mark.parametrize(("name", "arguments", "wanted"), EDGES)
def test_edge_values(name, arguments, wanted):
    got = getattr(of, name)(*arguments)
    assert same(got, wanted), (got, wanted)


def test_every_function_has_an_edge_value_or_a_check_above_and_both_tables_know_it():
    assert set(functions.OPERATIONS) <= {name for name, _, _ in EDGES} | set(UNARY)
    assert set(NUMPY) | {"cast"} == set(MPMATH) | {"cast"} == set(OPCODES)
    assert all(callable(getattr(of, name)) for name in functions.OPERATIONS)


def test_python_numbers_fold_in_float64():
    assert of.sqrt(2 / of.pi) == math.sqrt(2 / math.pi)
    assert (of.pi, of.e, of.inf) == (math.pi, math.e, math.inf)
    assert isinstance(of.exp(np.float32(1)), float)


@pytest.mark.parametrize(
    ("a", "b"), [(7.0, 2.0), (-7.0, 2.0), (1.0, 0.1), (-1.0, INF), (6.0, 3.0), (0.3, -0.1), (1.0, -INF)]
)
def test_floor_division_is_python_s(a, b):
    node = (Expr(input_(0)) // Expr(input_(1))).node
    (got,) = evaluate([(node, None)], [np.float64(a), np.float64(b)])
    assert got == a // b


def test_floor_division_by_zero_is_that_of_ieee():
    node = (Expr(input_(0)) // 0.0).node
    (got,) = evaluate([(node, None)], [np.array([1.0, -1.0, 0.0])])
    assert got[0] == INF and got[1] == -INF and math.isnan(got[2])


def test_operators_in_both_orders():
    x, v = Expr(input_(0)), np.array([-1.5, 0.5, 3.0])
    cases = {
        2 - x: 2 - v, 2 / x: 2 / v, 2**x: 2**v, 2 % x: 2 % v, 2 + x: 2 + v, 2 * x: 2 * v, x % 2: v % 2, -x: -v, +x: v,
    abs(x): abs(v), round(x): np.round(v), (x > 0) & (x < 2): (v > 0) & (v < 2),
    (x > 0) | ~(x < 2): (v > 0) | ~(v < 2), (x >= 0.5) ^ (x <= 0.5): (v >= 0.5) ^ (v <= 0.5), x == 0.5: v == 0.5,
    x != 0.5: v != 0.5, True & (x > 0): v > 0, x * (x > 0): v * (v > 0),
    }  # fmt: skip
    for expression, wanted in cases.items():
        (got,) = evaluate([(expression.node, None)], [v])
        np.testing.assert_array_equal(got, wanted)


def test_numpy_functions_become_ours():
    x = Expr(input_(0))
    assert np.tanh(x).node is of.tanh(x).node
    assert np.arcsin(x).node is of.asin(x).node
    assert np.float64(2) * x is not None and (np.float64(2) * x).node is (2 * x).node
    assert np.arctan2(1.0, x).node is of.atan2(1.0, x).node
    assert np.where(x > 0, x, 0).node is of.where(x > 0, x, 0).node
    assert np.maximum(x, 0).node is of.maximum(x, 0).node
    assert np.greater(1.0, x).node.op == "gt"


def test_types():
    x = Expr(input_(0))
    whole = of.cast(x, of.i32)
    assert whole.node.type is ValueType.I32 and of.cast(x, "T") is x
    assert of.where(x > 0, whole, whole).node.type is ValueType.I32
    assert of.cast(whole, "T").node.type is ValueType.T
    with pytest.raises(DtypeError, match="arithmetic of formulas is floating-point"):
        whole + 1
    with pytest.raises(DtypeError, match=r"operands have different types(.|\n)*got: T, f64"):
        of.cast(x, of.f64) + x
    with pytest.raises(DtypeError, match=r"cannot cast to this type(.|\n)*expected: T, bool, i32"):
        of.cast(x, of.f16)
    with pytest.raises(DtypeError, match="logical_and combines conditions"):
        x & x
    with pytest.raises(DtypeError, match="where needs a condition first"):
        of.where(x, 1, 2)
    with pytest.raises(DtypeError, match=r"of.tanh takes the tensors of a formula(.|\n)*numpy.ndarray"):
        of.tanh(np.ones(3))
