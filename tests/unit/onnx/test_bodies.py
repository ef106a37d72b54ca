"""Function bodies compute what the operator's reference says, in ONNX Runtime and in onnx's own evaluator."""

import numpy as np
import onnx
import pytest

import opforge as of
from opforge.errors import ExportError
from opforge.onnx import one_node_model
from opforge.ops import sparse_matmul
from opforge.schema import unregister
from opforge.verify.cases import arrays, cases_of

OPERATORS = [op for op in map(lambda n: getattr(of.ops, n), of.ops.__all__) if op.is_formula] + [sparse_matmul]


def ort(model, inputs):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, inputs
    )


def evaluate(model, inputs):
    """In float64: ONNX Runtime has no kernel for some functions there."""
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, inputs)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_body_equals_the_reference(operator, dtype):
    rtol, atol = (3e-5, 3e-5) if dtype == "f32" else (1e-12, 1e-12)
    for case in cases_of(operator):
        types = {"T": getattr(of, dtype), "I": of.i64}
        values = arrays(operator, case, types)
        model = one_node_model(operator, dtypes={"T": dtype}, attributes=case.attributes)
        onnx.checker.check_model(model)
        del model.graph.value_info[:]
        for item in (*model.graph.input, *model.graph.output):  # any rank
            item.type.tensor_type.ClearField("shape")
        names = [i.name for i in model.graph.input]
        with np.errstate(all="ignore"):
            expected = operator.reference(*values, **case.attributes)
        got = (ort if dtype == "f32" else evaluate)(model, dict(zip(names, values, strict=True)))[0]
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, err_msg=case.name)


@of.formula("test.bodies::Everything")
def everything(x, y, *, k: float = 0.5):
    """Functions that ONNX has no operator for, and most that it has."""
    a = of.expm1(x) + of.log1p(of.abs(y)) + of.cbrt(x) + of.trunc(y * 3) + of.exp2(x) + of.log2(of.abs(x) + 1)
    b = of.mod(x, 0.7) + of.fmod(y, 0.9) + of.atan2(x, y) + of.rsqrt(of.square(x) + k) + of.log10(of.abs(y) + 2)
    c = of.where((x > y) & ~(x == 0), of.sinh(x), of.cosh(y)) + of.sign(x) + of.floor(y) + of.ceil(x) + of.round(y * 2)
    d = (
        of.minimum(x, y) * of.maximum(x, k)
        + of.clip(x, -k, k)
        + of.tan(x)
        + of.asinh(y)
        + of.erfc(x)
        + of.softplus(y)
        + of.relu(x)
    )
    return a + b + c + d


def test_every_instruction_has_an_onnx_form():
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-1.4, 1.4, 400), rng.uniform(-1.4, 1.4, 400)
    model = one_node_model(everything, dtypes={"T": "f64"})
    for item in (*model.graph.input, *model.graph.output):
        item.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    # onnx's evaluator rounds Erf to float32, which sets the tolerance.
    np.testing.assert_allclose(evaluate(model, {"x": x, "y": y})[0], everything.reference(x, y), rtol=1e-6, atol=1e-6)


def test_small_arguments_keep_their_accuracy():
    @of.formula("test.bodies::Small")
    def small(x):
        """Cancels where it is written naively."""
        return of.expm1(x) * of.log1p(x)

    try:
        x = np.array([1e-9, -3e-8, 1e-4, 0.3, 2.0])
        model = one_node_model(small, dtypes={"T": "f64"})
        for item in (*model.graph.input, *model.graph.output):
            item.type.tensor_type.ClearField("shape")
        del model.graph.value_info[:]
        np.testing.assert_allclose(evaluate(model, {"x": x})[0], small.reference(x), rtol=1e-13)
    finally:
        unregister(small)


def test_sparse_body_loses_no_terms_on_several_threads():
    """A scatter that adds on several threads at once would lose some in one of these runs."""
    rng = np.random.default_rng(0)
    counts = rng.integers(50, 200, 40)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = rng.integers(0, 60, indptr[-1])
    values, dense = (
        rng.standard_normal(indptr[-1]).astype(np.float32),
        rng.standard_normal((60, 512)).astype(np.float32),
    )
    model = one_node_model(sparse_matmul)
    expected = sparse_matmul.reference(values, indices, indptr, dense)
    for _ in range(10):
        got = ort(model, {"values": values, "indices": indices, "indptr": indptr, "dense": dense})[0]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_sparse_body_takes_empty_rows_and_duplicates():
    values, indices, indptr = np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 0, 2, 2, 3, 3])
    dense = np.arange(6.0).reshape(2, 3)
    model = one_node_model(sparse_matmul, dtypes={"T": "f64", "I": "i64"})
    got = ort(model, {"values": values, "indices": indices, "indptr": indptr, "dense": dense})[0]
    np.testing.assert_array_equal(got, sparse_matmul.reference(values, indices, indptr, dense))


def test_a_gradient_has_no_body():
    from opforge.codegen.onnx_function import emit_function
    from opforge.ops import mod_sigmoid

    gradient = mod_sigmoid.derived[0]
    with pytest.raises(ExportError, match="summed to an input's shape has no function body"):
        emit_function(gradient.formula.program(), domain="d", name="N", inputs=["g", "x", "t"], outputs=["a", "b"])
