"""`of.kernel` and the tracer of gradients."""

import numpy as np
import pytest

import opforge as of
from opforge.errors import DtypeError, SchemaError
from opforge.schema import GradientProgram, unregister

TYPES = {"T": of.floating, "I": of.index}


@pytest.fixture
def kernel(tmp_path):
    source = tmp_path / "cpu.cc"
    source.write_text("// kernels\n")
    operators = []

    def declare(name, signature, **options):
        options = {"reference": None, "sources": [source], "types": TYPES, **options}
        operators.append(of.kernel(f"t.kernels::{name}", signature, **options))
        return operators[-1]

    yield declare
    for operator in operators:
        unregister(operator)


def test_a_gradient_is_traced_into_a_program(kernel):
    def gradient(inputs, outputs, grad_outputs, attrs):
        values = grad_values(grad_outputs.out, inputs.indices, inputs["dense"])
        dense = grad_dense(grad_outputs.out, inputs.values, inputs.indices, scale=attrs.scale)
        grad_values(grad_outputs.out, inputs.indices, inputs.dense)  # not used
        return {"values": values, "dense": dense}

    op = kernel(
        "Product",
        "(values: T[n], indices: I[n], dense: T[k]; scale: float = 1) -> (out: T[k])",
        types={"T": "f32 f64".split(), "I": of.index},
        gradient=gradient,
        doc="A product.",
    )
    # Declared after the operator whose gradient names them: tracing happens when the gradient is asked for.
    both = {"types": {"T": of.floating, "I": of.index}}
    grad_values = kernel("GradValues", "(g: T[k], indices: I[n], dense: T[k]) -> (values: T[n])", **both)
    grad_dense = kernel(
        "GradDense", "(g: T[k], values: T[n], indices: I[n]; scale: float, eps: float = 0) -> (dense: T[k])", **both
    )
    assert op.gradient == (
        "t.kernels::GradValues:1(g0, i1, i2) -> v0; "
        "t.kernels::GradDense:1(g0, i0, i1; scale = @scale) -> v1; return v0, -, v1"
    )
    assert str(GradientProgram.parse(op.gradient)) == op.gradient
    assert op.differentiable and op.doc == "A product." and op.sources[0].name == "cpu.cc"
    assert op.declared_at.startswith(__file__)


def identity(kernel):
    return kernel("Identity", "(x: T[*S]; k: int = 1) -> (y: T[*S])", types={"T": of.floating})


def gradient_mistake(kernel, gradient, *words, error=SchemaError):
    op = kernel("Wrong", "(x: T[n], i: I[n]; k: float = 1) -> (y: T[n])", gradient=gradient)
    with pytest.raises(error) as caught:
        op.gradient  # noqa: B018
    unregister(op)
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))


def test_mistakes_of_gradients(kernel):
    same = identity(kernel)
    gradient_mistake(kernel, lambda i, o, g, a: {"x": g.y * 2}, "not of arithmetic", "formula operator", __file__)
    gradient_mistake(kernel, lambda i, o, g, a: {"x": same(g.z)}, "no gradient of output 'z'", "expected: y")
    gradient_mistake(kernel, lambda i, o, g, a: {"z": g.y}, "keys x, i", "got: z")
    gradient_mistake(kernel, lambda i, o, g, a: {}, "says nothing of the input x", '{"x": None}')
    gradient_mistake(kernel, lambda i, o, g, a: {"x": 1.0}, "no tensor of the gradient", "float")
    gradient_mistake(kernel, lambda i, o, g, a: g.y, "a dict with the keys")
    gradient_mistake(kernel, lambda i, o, g: {}, "cannot be traced: TypeError", __file__)
    gradient_mistake(kernel, lambda i, o, g, a: {"x": same(g.y, k=a.k)}, "another kind", "expected: int", "got: float")
    gradient_mistake(kernel, lambda i, o, g, a: {"x": same(g.y, j=1)}, "unknown attribute j", "expected: k")
    gradient_mistake(kernel, lambda i, o, g, a: {"x": of.tanh(g.y)}, "of.tanh takes the", error=DtypeError)


def test_formula_operators_serve_in_gradients(kernel):
    double = of.formula("t.kernels::Double")(lambda x: x * 2)
    op = kernel(
        "Doubled", "(x: T[n]) -> (y: T[n])", types={"T": of.floating}, gradient=lambda i, o, g, a: {"x": double(g.y)}
    )
    assert op.gradient == "t.kernels::Double:1(g0) -> v0; return v0"
    unregister(double)


def test_mistakes_of_declarations(kernel):
    with pytest.raises(
        SchemaError, match=r"source file is missing(.|\n)*nowhere.cc(.|\n)*relative to .*test_kernels.py"
    ):
        kernel("Missing", "(x: T[n]) -> (y: T[n])", types={"T": of.floating}, sources=["nowhere.cc"])
    with pytest.raises(SchemaError, match="needs gradient="):
        kernel("Missing", "(x: T[n]) -> (y: T[n])", types={"T": of.floating}, differentiable=True)
    with pytest.raises(SchemaError, match="name has a domain"):
        of.kernel("Missing", "(x: T[n]) -> (y: T[n])", types="T: f32", sources=[], reference=None)


def test_reference_and_refused_gradient(kernel):
    op = kernel(
        "Cumulative", "(x: T[n]) -> (y: T[n])", types={"T": of.floating}, reference=np.cumsum, differentiable=False
    )
    np.testing.assert_array_equal(op.reference(np.arange(3)), [0, 1, 3])
    assert op.gradient is None and not op.differentiable
