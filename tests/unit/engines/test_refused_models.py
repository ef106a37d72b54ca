"""Models that sessions of ONNX Runtime and of OpenVINO refuse before the engine sees them: the same words in both."""

import sys

import pytest

import opforge as of
from opforge.errors import ArgumentError, MissingOperatorError
from opforge.schema import registry
from tests.unit.onnxruntime.conftest import INT32, formula_model

pytestmark = pytest.mark.compiler


@pytest.fixture(params=["onnxruntime", "openvino"])
def engine(request):
    """The name of an engine with sessions."""
    pytest.importorskip(request.param)
    return request.param


def _session(engine, model):
    return getattr(of, engine).session(model)


def test_an_unknown_operator_is_named_with_the_nearest(engine):
    words = r"(?s)nobody registered this operator.*did you mean com.example::Cus"
    with pytest.raises(MissingOperatorError, match=words):
        _session(engine, formula_model("CustomGelu2"))


def test_without_the_engine_the_way_to_get_it_is_named(engine, monkeypatch):
    monkeypatch.setitem(sys.modules, engine, None)
    with pytest.raises(ModuleNotFoundError, match=rf"needs {engine}.*pip install 'opforge\[{engine}\]'"):
        _session(engine, formula_model())


def test_a_version_before_the_operator_is_refused(engine):
    operator = of.formula("test.late::Late", since=3)(lambda x: x)
    try:
        model = formula_model("Late", domains=(("test.late", 2),))
        with pytest.raises(MissingOperatorError, match=r"(?s)older than the operator.*test.late version 3 or newer"):
            _session(engine, model)
    finally:
        registry.unregister(operator)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"low": 0.5}, r"there is no attribute 'low'.*one of \['hi', 'lo'\]"),
        ({"lo": 1}, r"the attribute 'lo' has the wrong type; expected float; got int"),
    ],
)
def test_attributes_are_held_against_the_declaration(engine, given, words):
    with pytest.raises(ArgumentError, match=rf"(?s)custom nodes do not fit their operators.*{words}"):
        _session(engine, formula_model("ClipSigmoid", **given))


def test_a_dtype_that_no_kernel_has(engine):
    with pytest.raises(ArgumentError, match=r"(?s)the input 'x' has an undeclared dtype.*f32.*int32"):
        _session(engine, formula_model(element=INT32))
