"""`of.formula`: what a declaration gives, and the words of every mistake."""

import math

import numpy as np
import pytest

import opforge as of
from opforge.errors import ArgumentError, DtypeError, SchemaError
from opforge.expr.declare import trace_formula
from opforge.schema import find, unregister


def trace(function, **options):
    return trace_formula(function, "t.mistakes::Op", **options)


def swish(x, *, beta: float = 1.0):
    """x times its sigmoid."""
    return x * of.sigmoid(beta * x)


@pytest.fixture
def declared():
    operators = []

    def declare(name, function, **options):
        operators.append(of.formula(name, **options)(function))
        return operators[-1]

    yield declare
    for operator in operators:
        for derived in operator.derived:
            for second in derived.derived:
                unregister(second)
            unregister(derived)
        unregister(operator)


def test_a_declaration_gives_an_operator(declared):
    op = declared("t.declare::Swish", swish)
    assert str(op.signature) == "(x: T[*S]; beta: float = 1.0) -> (y: T[*S])"
    assert (op.types_text, op.autocast, op.nan_policy, op.host_name) == (
        "T: f16 bf16 f32 f64",
        "promote",
        "propagate",
        "swish",
    )
    assert op.doc == "x times its sigmoid." and op.differentiable and not op.is_gradient
    assert op.gradient == "t.declare::SwishGrad:1(g0, i0; beta = @beta) -> v0; return v0"
    assert op.declared_at.startswith(__file__) and op.formula.source.line == swish.__code__.co_firstlineno
    assert find("t.declare", "SwishGrad") is op.gradient_operator


def test_gradient_operators(declared):
    op = declared("t.declare::Mod", lambda x, threshold: of.sigmoid(x - threshold))
    grad = op.gradient_operator
    assert str(op.signature) == "(x: T[*A], threshold: T[*B]) -> (y: T[bcast(A, B)])"
    assert str(grad.signature) == (
        "(grad_y: T[*A], x: T[*B], threshold: T[*C]) -> (grad_x: T[*B], grad_threshold: T[*C])"
    )
    second = grad.gradient_operator
    assert second.name == "ModGradGrad" and second.is_gradient and grad.is_gradient
    assert str(second.signature) == (
        "(grad_grad_x: T[*A], grad_grad_threshold: T[*B], grad_y: T[*C], x: T[*D], threshold: T[*E])"
        " -> (grad_grad_y: T[*C], grad_x: T[*D], grad_threshold: T[*E])"
    )
    assert grad.gradient == "t.declare::ModGradGrad:1(g0, g1, i0, i1, i2) -> v0, v1, v2; return v0, v1, v2"
    assert second.gradient is None and not second.differentiable and second.gradient_operator is None


def test_orders_of_derivatives(declared):
    third = declared("t.declare::Third", lambda x: x**4, derivatives=3)
    names = [op.name for op in _chain(third)]
    assert names == ["Third", "ThirdGrad", "ThirdGradGrad", "ThirdGradGradGrad"]
    none = declared("t.declare::Never", lambda x: x**4, differentiable=False)
    assert none.gradient is None and none.gradient_operator is None and not none.differentiable


def _chain(op):
    while op is not None:
        yield op
        op = op.gradient_operator


def test_several_outputs_and_types(declared):
    def parts(x, y):
        return of.maximum(x, y), x > y

    op = declared("t.declare::Parts", parts, outputs=["best", "first"], dtypes=[of.f32, "f64"])
    assert str(op.signature) == "(x: T[*A], y: T[*B]) -> (best: T[bcast(A, B)], first: bool[bcast(A, B)])"
    assert op.types_text == "T: f32 f64"
    assert op.gradient == "t.declare::PartsGrad:1(g0, i0, i1) -> v0, v1; return v0, v1"
    best, first = op.reference(np.array([1.0, 5.0]), np.array(3.0))
    np.testing.assert_array_equal(best, [3, 5])
    assert first.dtype == bool and first.tolist() == [False, True]
    formula = op.formula
    assert len(formula.program([1]).outputs) == 1 and formula.program([1]).outputs[0].type.text == "bool"
    assert formula.blob() is formula.blob() and formula.blob([0]) != formula.blob()
    with pytest.raises(ArgumentError, match="no such outputs"):
        formula.blob([2])


def test_attributes_of_every_kind(declared):
    def kinds(x, *, n: int = 3, flip: bool = False, scale: float = 0.1, bare=2.5):
        return of.where(flip, -x, x**n) * scale + bare

    op = declared("t.declare::Kinds", kinds)
    shown = str(op.signature)
    assert shown.startswith("(x: T[*S]; n: int = 3, flip: bool = false, scale: float = 0.1")
    assert shown.endswith(", bare: float = 2.5) -> (y: T[*S])")
    tenth = float(np.float32(0.1))
    assert op.reference(np.array(2.0)).item() == 8 * tenth + 2.5
    assert op.reference(np.array(2.0), flip=True, n=2).item() == -2 * tenth + 2.5


def test_reference_broadcasts_and_sums_back(declared):
    op = declared("t.declare::Sums", lambda x, threshold: of.sigmoid(x - threshold))
    x, threshold, g = np.arange(6.0).reshape(2, 3), np.array([[0.5], [1.0]]), np.ones((2, 3))
    grad_x, grad_threshold = op.gradient_operator.reference(g, x, threshold)
    assert grad_x.shape == (2, 3) and grad_threshold.shape == (2, 1)
    np.testing.assert_allclose(grad_threshold, -grad_x.sum(1, keepdims=True))
    _, scalar = op.gradient_operator.reference(g, x, np.array(0.5))
    assert scalar.shape == ()
    _, empty = op.gradient_operator.reference(np.ones((0, 3)), np.ones((0, 3)), np.ones((1, 3)))
    np.testing.assert_array_equal(empty, np.zeros((1, 3)))


def test_reference_survives_overflow_of_the_written_form(declared):
    op = declared("t.declare::SoftPlus", lambda x: of.log(1 + of.exp(x)))
    np.testing.assert_array_equal(op.reference(np.array([1000.0, np.inf])), [1000.0, np.inf])
    assert np.isnan(op.reference(np.array(np.nan)))


def mistake(function, *words, error=SchemaError, **options):
    with pytest.raises(error) as caught:
        trace(function, **options)
    for word in (*words, "t.mistakes::Op", __file__):
        assert word in str(caught.value), (word, str(caught.value))


def test_functions_of_other_libraries():
    mistake(lambda x: math.tanh(x), "use of.tanh")
    mistake(lambda x: x.exp(), "no attribute 'exp'", "use of.exp(...)")
    mistake(lambda x: x.shape, "no attribute 'shape'")
    mistake(lambda x: np.linalg.norm(x), "numpy.norm cannot be traced")
    mistake(lambda x: np.add.reduce(x), "numpy.add cannot be traced")
    mistake(lambda x: np.spacing(x), "numpy.spacing cannot be traced", "of opforge: abs, acos")
    mistake(lambda x: x + np.ones(3), "numbers only", "numpy.ndarray", error=DtypeError)
    mistake(lambda x: x + "1", "builtins.str", error=DtypeError)
    mistake(lambda x: of.tnh(x), "AttributeError", "did you mean of.tanh?")
    mistake(lambda x: len([][x and 0]) or x, "no value to branch on", "of.where")
    mistake(lambda x: int(x), "no number")
    mistake(lambda x: 1 / 0 + x, "ZeroDivisionError", "1 / 0 + x")


def test_wrong_arity():
    mistake(lambda x: of.tanh(x, x), "takes 1 positional argument", "call of.tanh(x)")
    mistake(lambda x: of.clip(x, 0), "missing 1 required", "call of.clip(x, low, high)")


def test_control_flow():
    def branch(x):
        return x if x > 0 else -x

    mistake(branch, "no value to branch on", "of.where(condition, a, b)")
    mistake(lambda x: max(x, 0), "of.maximum")
    mistake(lambda x: x > 0 and x, "& | ~")
    mistake(lambda x: 0 < x < 1, "no value to branch on")


def test_what_is_not_elementwise():
    mistake(lambda x: x[0], "indexing is not elementwise", "of.kernel")
    mistake(lambda x: sum(x), "iteration is not elementwise")
    mistake(lambda x: x + len(x), "len() is not elementwise")
    mistake(lambda x: round(x, 2), "digits", "of.round")


def test_parameters():
    def star(*xs):
        return xs[0]

    def text(x, *, mode: str = "a"):
        return x

    def bare(x, *, k):
        return x * k

    def wrong_default(x, *, n: int = 1.5):
        return x * n

    def no_flag(x, *, flag: bool = 1):
        return x

    mistake(lambda: 1, "at least one tensor")
    mistake(star, "*xs: a formula names each")
    mistake(text, "mode", "float, int or bool", "got: mode: str")
    mistake(bare, "k has no type", "no annotation")
    mistake(wrong_default, "default of attribute n", "expected: int", "got: 1.5")
    mistake(no_flag, "default of attribute flag", "expected: bool")
    mistake(lambda x, y=2.0: x * y, "tensor y has a default", "def f(x, *, y: float = 2.0)")
    mistake(lambda x, y: x, "tensor y is not used", "remove the parameter")
    mistake(lambda x, *, k=1.0: x, "attribute k is not used")


def test_results():
    mistake(lambda x: None, "return is missing")
    mistake(lambda x: 3.0, "something else than an expression", "got: 3.0")
    mistake(lambda x: (), "no output")
    mistake(lambda x: (x, x), "wrong number of output names", outputs=["a"])
    mistake(lambda x: x, "output name x is taken", outputs=["x"])
    mistake(lambda x: (x, x), "output name a is taken", outputs=["a", "a"])
    assert trace(lambda y: y).outputs[0].name == "out"


def test_dtypes_and_width():
    with pytest.raises(SchemaError, match=r"computes in floating types(.|\n)*got: f32 i32"):
        of.formula("t.declare::Wide", dtypes=["f32", of.i32])(swish)
    names = ", ".join(f"x{k}" for k in range(17))
    wide = eval(f"lambda {names}: {names.replace(',', ' +')}")
    with pytest.raises(SchemaError, match=r"too many tensors for a gradient(.|\n)*differentiable=False"):
        of.formula("t.declare::Wide")(wide)
    op = of.formula("t.declare::Wide", differentiable=False)(wide)
    assert len(op.signature.inputs) == 17 and op.gradient is None
    unregister(op)


def test_shared_subexpressions_do_not_make_texts_explode():
    def deep(x):
        for _ in range(200):
            x = x * x + x
        return x

    formula = trace(deep)
    assert len(repr(formula)) < 10**5
    assert len(formula.gradient().program().instructions) < 2000


def test_names():
    with pytest.raises(SchemaError, match=r"name has a domain(.|\n)*expected: domain::Name"):
        of.formula("Gelu")(swish)
    with pytest.raises(SchemaError, match="CamelCase"):
        of.formula("t.declare::gelu")(swish)


def test_declaring_twice(declared):
    first = declared("t.declare::Twice", swish)
    assert of.formula("t.declare::Twice")(swish) is first
    with pytest.raises(SchemaError, match="declared twice with different schemas"):
        of.formula("t.declare::Twice")(lambda x, *, beta=1.0: x * beta)


def test_the_canonical_text_follows_the_meaning():
    texts = {trace(f).canonical for f in (lambda x: x * 2, lambda x: x * 2.0, lambda x: x + x, lambda z: z * 2)}
    assert len(texts) == 3
    assert trace(lambda x: x * 2).hash == trace(lambda x: x * 2).hash
