"""Formulas without a compiler: the interpreter is found by itself and gives the bits of compiled kernels."""

import numpy as np
import pytest

import opforge as of
from opforge import ops
from opforge._paths import runtime_library
from opforge.build import library_for
from opforge.schema import DType
from opforge.verify.cases import arrays, cases_of

pytestmark = pytest.mark.compiler

OPERATORS = [getattr(ops, name) for name in ops.__all__ if getattr(ops, name).is_formula]
DTYPES = [of.f64, of.f32, of.bf16, of.f16]


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    """Share the user's cache with the other tests of the library's operators, instead of the folder's own fixture."""
    monkeypatch.delenv("OPFORGE_JIT", raising=False)
    monkeypatch.delenv("OPFORGE_LIBRARY_PATH", raising=False)


def same_bits(a, b):
    """Compare bits; any NaN equals any NaN."""
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    nan = np.isnan(a.astype(np.float64))
    width = np.dtype(f"u{a.itemsize}")
    return bool((nan == np.isnan(b.astype(np.float64))).all() and (a.view(width)[~nan] == b.view(width)[~nan]).all())


def both(monkeypatch, operator, inputs, **attributes):
    """Run compiled and interpreted; give both as tuples."""
    results = []
    for mode in ("require", "off"):
        monkeypatch.setenv("OPFORGE_JIT", mode)
        assert library_for([operator]).interpreted == (mode == "off")
        result = operator(*inputs, **attributes)
        results.append(result if isinstance(result, tuple) else (result,))
    return zip(*results, strict=True)


def test_the_runtime_library_is_there():
    assert runtime_library().is_file(), "build libopforge first: make native"


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.host_name)
def test_library_operators_and_their_gradients(operator, monkeypatch):
    rng = np.random.default_rng(0)
    (grad,) = operator.derived
    (grad_grad,) = grad.derived
    for dtype in DTYPES:
        for case in cases_of(operator):
            inputs = arrays(operator, case, {"T": dtype}, seed=5)
            shape = np.broadcast_shapes(*(a.shape for a in inputs))
            first = [rng.standard_normal(shape).astype(dtype.numpy), *inputs]
            second = [*(rng.standard_normal(a.shape).astype(dtype.numpy) for a in inputs), *first]
            for which, values in ((operator, inputs), (grad, first), (grad_grad, second)):
                for compiled, interpreted in both(monkeypatch, which, values, **case.attributes):
                    assert same_bits(compiled, interpreted), f"{which.key} {dtype} {case.name}"


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-40, -1e-40, 88.8, -104.0, 1e30, -1e30, np.inf, -np.inf, np.nan, 2.5]


def sweep(dtype, seed):
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        return np.concatenate([SPECIAL, rng.normal(0, 1, 300), rng.normal(0, 30, 200)]).astype(dtype.numpy)


@of.formula("test.interpreter::UnaryA", dtypes=("f32", "f64", "bf16"), differentiable=False)
def unary_a(x):
    """Exponentials, logarithms, powers."""
    return (
        of.exp(x), of.exp2(x), of.expm1(x), of.log(x), of.log2(x), of.log10(x), of.log1p(x), of.sqrt(x), of.rsqrt(x),
        of.cbrt(x), of.square(x), of.reciprocal(x), of.sigmoid(x), of.softplus(x), of.relu(x), of.abs(x),
    )  # fmt: skip


@of.formula("test.interpreter::UnaryB", dtypes=("f32", "f64", "bf16"), differentiable=False)
def unary_b(x):
    """Trigonometry, hyperbolics, rounding."""
    return (
        of.sin(x), of.cos(x), of.tan(x), of.asin(x), of.acos(x), of.atan(x), of.sinh(x), of.cosh(x), of.tanh(x),
        of.asinh(x), of.acosh(x), of.atanh(x), of.erf(x), of.erfc(x), of.floor(x), of.round(x),
    )  # fmt: skip


@of.formula("test.interpreter::Binary", dtypes=("f32", "f64", "bf16"), differentiable=False)
def binary(x, y, *, scale: float = 0.3):
    """Arithmetic, comparisons, selection, casts."""
    return (
        x + y * scale, x - y, x / y, of.minimum(x, y), of.maximum(x, y), of.pow(x, y), of.mod(x, y), of.fmod(x, y),
        of.atan2(x, y), of.clip(x, -0.5, scale), of.where(x > y, x, -y), of.sign(x) * of.ceil(y) + of.trunc(x),
        of.logical_xor(of.isnan(x), x <= y), of.logical_or(of.isinf(x), of.logical_not(x >= y)), of.cast(x, "i32"),
        of.cast(of.cast(y, "i64"), "f64"),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [of.f32, of.f64, of.bf16], ids=str)
@pytest.mark.parametrize("operator", [unary_a, unary_b, binary], ids=lambda o: o.host_name)
def test_every_function(operator, dtype, monkeypatch):
    inputs = [sweep(dtype, seed) for seed in range(len(operator.signature.inputs))]
    if len(inputs) == 2:
        inputs = [inputs[0][:, None], inputs[1][::7]]
    program = operator.formula.program()
    for k, (compiled, interpreted) in enumerate(both(monkeypatch, operator, inputs)):
        assert same_bits(compiled, interpreted), f"output {k}: {program.outputs[k]}"


def test_formulas_need_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)

    @of.formula("test.interpreter::NoCompiler")
    def no_compiler(x, *, k: float = 2.0):
        """Scale by an attribute."""
        return x * k

    library = library_for([no_compiler])
    assert library.interpreted
    assert list(library.operators) == [f"test.interpreter::NoCompiler{suffix}:1" for suffix in ("", "Grad", "GradGrad")]
    row = library.operator(no_compiler.key)
    assert (row.signature, row.types) == (str(no_compiler.signature), no_compiler.types_text)
    assert (row.schema_hash, row.gradient) == (no_compiler.schema_hash, no_compiler.gradient)
    assert no_compiler(np.ones(3, np.float32), k=3.0).tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(of.errors.ToolchainError, match="no C\\+\\+ compiler works"):
        monkeypatch.setenv("OPFORGE_JIT", "require")
        library_for([no_compiler])


def test_a_gradient_is_in_the_library_of_its_operator():
    library = library_for([ops.swish])
    assert library_for([ops.swish.derived[0]]) is library
    assert library_for([ops.swish.derived[0].derived[0]]) is library


def test_a_broken_compiler_falls_back_with_a_warning(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\ncase "$*" in *-dM*) exec g++ "$@" ;; esac\necho "internal failure" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))

    @of.formula("test.interpreter::Broken")
    def broken_compiler(x):
        """Negate."""
        return -x

    with pytest.warns(RuntimeWarning, match=r"(?s)are interpreted, the compiler failed: .*internal failure"):
        assert library_for([broken_compiler]).interpreted
    assert DType.parse("f32") in broken_compiler.types["T"]
