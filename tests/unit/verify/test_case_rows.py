"""What an author may write in `cases.py`, and the words for what is no case."""

import sys
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.errors import SchemaError
from opforge.schema import Operator, registry
from opforge.verify import check
from opforge.verify.cases import arrays, case_of, cases_of, limit_of
from opforge.verify.sweep import drawn_cases

_TYPES = {"T": of.f32, "I": of.i64}


def _operator() -> Operator:
    return Operator("test.rows", "Rows", "(x: T[*S], at?: I[n], *more: T[m]) -> (y: T[*S])", types="T: f32; I: i64")


def test_values_may_stand_alone():
    row = {"inputs": {"x": [[1, 2.5], ["nan", "-inf"]], "at": np.array([2**53 + 1]), "more": [[1.0], {"shape": [2]}]}}
    case = case_of(_operator(), row, "case 3")
    assert case.name == "case 3"
    x, at, first, second = arrays(_operator(), case, _TYPES)
    np.testing.assert_array_equal(x, np.float32([[1, 2.5], [np.nan, -np.inf]]))
    assert at.tolist() == [2**53 + 1] and first.tolist() == [1.0] and second.shape == (2,)
    assert not case.finite
    assert arrays(_operator(), case_of(_operator(), {"inputs": {"x": 2.0, "at": [2**53 + 1], "more": [1.0]}}), _TYPES)[
        1
    ].tolist() == [2**53 + 1]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([1.0], ["no case", '"inputs"']),
        ({"name": "a"}, ["no case"]),
        ({"name": "a", "inputs": {}, "attribute": {}}, ["case a", "did you mean attributes?"]),
        ({"name": "a", "inputs": {"x": {"shap": [3]}}}, ["case a, input x", "did you mean shape?"]),
        ({"name": "a", "inputs": {"x": {"shape": [3], "hihg": 3}}}, ["hihg", "did you mean high?"]),
        ({"name": "a", "inputs": {"x": {"shape": [3], "values": [1]}}}, ["no description of an input"]),
        ({"name": "a", "inputs": {"x": {}}}, ["no description of an input", '{"shape": [...]']),
        ({"name": "a", "inputs": {"x": {"shape": 3}}}, ["a shape is a list of sizes", "got: 3"]),
        ({"name": "a", "inputs": {"x": {"shape": [3, -1]}}}, ["a shape is a list of sizes"]),
        ({"name": "a", "inputs": {"x": {"shape": [3], "low": 1.0}}}, ["low and high belong together"]),
        ({"name": "a", "inputs": {"x": [[1, 2], [3]]}}, ["these are no values", "[[1, 2], [3]]"]),
        ({"name": "a", "inputs": {"x": "zeros"}}, ["these are no values", "'zeros'"]),
        ({"name": "a", "inputs": {"x": 1.0, "more": 1.0}}, ["a variadic input takes a list"]),
        ({"name": "a", "inputs": {"x": 1.0, "more": [{"vales": [1]}]}}, ["input more[0]", "did you mean values?"]),
        ({"name": "a", "inputs": {"at": {"csr": {"rows": 3}}}}, ["no description of a CSR matrix's part"]),
    ],
)
def test_what_is_no_case(row, words):
    with pytest.raises(SchemaError) as raised:
        case_of(_operator(), row)
    for word in ["test.rows::Rows", *words]:
        assert word in str(raised.value)


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """Declare operators from texts of op.py and cases.py, for one test."""
    monkeypatch.setenv("OPFORGE_JIT", "off")
    before = set(registry.operators(gradients=True, all_versions=True).values())
    modules = set(sys.modules)

    def declare(op, cases=""):
        folder = tmp_path / "made"
        folder.mkdir()
        (folder / "op.py").write_text(op)
        (folder / "cpu.cc").write_text("")  # never compiled
        if cases:
            (folder / "cases.py").write_text(cases)
        return of.load(folder)

    yield declare
    for operator in registry.operators(gradients=True, all_versions=True).values():
        if operator not in before:
            registry.unregister(operator)
    for name in set(sys.modules) - modules:
        if name.startswith("_opforge_"):
            del sys.modules[name]


_RATIO = """
import opforge as of

@of.formula("test.rows::Ratio", dtypes=("f32",))
def ratio(x):
    return x * x / (1 + of.abs(x))
"""


def test_an_overflow_inside_a_formula_is_named_and_a_limit_is_a_word_of_the_author(declared, tmp_path):
    (operator,) = declared(_RATIO)
    (failure,) = [row for row in check(operator, "quick").failures if row.check == "boundary"]
    assert "inputs up to 100000 are right: an intermediate result overflows where float64 has room" in failure.detail
    assert limit_of(operator) == np.inf
    (tmp_path / "made" / "cases.py").write_text('LIMITS = {"Ratio": (1e15, "the square overflows beyond 1.8e19")}')
    report = check(operator, "quick")
    assert report.passed, report.failures
    (module,) = (
        module
        for name, module in sys.modules.items()
        if name.startswith("_opforge_cases_") and Path(module.__file__).is_relative_to(tmp_path)
    )
    module.LIMITS = {"Ratio": 3.0}
    assert any("expected: (largest finite input, reason)" in row.detail for row in check(operator, "quick").failures)


def test_required_attributes_want_cases(declared):
    (operator,) = declared(
        "import opforge as of\n@of.formula('test.rows::Within')\ndef within(x, *, low: float):\n    return x - low\n"
    )
    with pytest.raises(SchemaError, match="attributes without defaults and no cases that give them"):
        cases_of(operator)
    report = check(operator, "quick")
    assert len(report.failures) == 1, report.failures  # said once, not by every part


def test_versions_are_told_apart(declared):
    one, two = declared(
        "import opforge as of\n"
        "@of.formula('test.rows::Ramp', dtypes=('f32',))\ndef ramp(x):\n    return of.relu(x)\n"
        "@of.formula('test.rows::Ramp', since=2, dtypes=('f32',))\ndef ramp_2(x):\n    return of.clip(x, 0, 6)\n"
    )
    assert check(one, "quick").summary().startswith("test.rows::Ramp:1: ")
    assert check(two, "quick").summary().startswith("test.rows::Ramp:2: ")


_KERNEL = """
import opforge as of

def reference(x, at):
    return x.reshape(len(x), -1)[at]

taken = of.kernel("test.rows::Taken", "(x: T[m, n], at: i64[k]) -> (y: T[k, n])", types={"T": of.f32},
                  sources=["cpu.cc"], reference=reference, gradient=lambda i, o, g, a: {"x": None})
"""


def test_a_reference_that_raises_names_call_and_line(declared, tmp_path):
    (operator,) = declared(_KERNEL)
    with pytest.raises(SchemaError) as raised:
        operator.reference(np.zeros((0, 3), np.float32), np.zeros(0, np.int64))
    text = str(raised.value)
    assert "test.rows::Taken: the reference raises" in text
    assert "expected: outputs for float64[0, 3], int64[0]" in text
    assert "ValueError: cannot reshape array of size 0" in text
    assert f"{tmp_path}/made/op.py:5: return x.reshape(len(x), -1)[at]" in text


def test_a_gradient_that_makes_no_program_is_a_finding(declared):
    (operator,) = declared(_KERNEL.replace('{"x": None}', "{}"))
    report = check(operator, "quick", isolate=False)
    assert any("the gradient says nothing of the input x" in row.detail for row in report.failures)


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ("CASES = 1 / 0", ["cases.py does not load", "ZeroDivisionError", "cases.py:1: CASES = 1 / 0"]),
        ("CASES = {'Taken': [{'inputs': {'x': 1.0, 'to': [1]}}]}", ["a case names inputs that are not there"]),
        ("CASES = {'Taken': 'many'}", ["test.rows::Taken: cases are a list", "got: 'many'"]),
    ],
)
def test_faults_of_cases_are_findings(declared, cases, words):
    (operator,) = declared(_KERNEL, cases)
    details = [row.detail for row in check(operator, "quick", isolate=False).failures]
    assert any(all(word in detail for word in words) for detail in details), details


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        ("sizes['q']", ["the function that draws inputs raises", "KeyError: 'q'", "cases.py:2:", "for the sizes {'m'"]),
        ("{'to': 1}", ["the function that draws inputs gives something else", "got: to"]),
        ("[1]", ["the function that draws inputs gives something else", "got: [1]"]),
    ],
)
def test_faults_of_draws_are_named(declared, draw, words):
    (operator,) = declared(_KERNEL, f"CASES = []\nDRAWS = {{'Taken': lambda rng, sizes: {draw}}}\n")
    with pytest.raises(SchemaError) as raised:
        drawn_cases(operator, 3, 0)
    for word in ["test.rows::Taken, DRAWS in cases.py", *words]:
        assert word in str(raised.value)
