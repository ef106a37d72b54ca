"""Dimensions by name: the text that comes out has the value that it should, for any value of the names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opforge.schema.symbols import Symbolic, parse_symbolic

names = st.sampled_from(["N", "M", "batch"])
leaf = names | st.integers(-9, 9).map(str)
expressions = st.recursive(
    leaf,
    lambda inner: (
        st.builds("({}{}{})".format, inner, st.sampled_from(["+", "-", "*"]), inner)
        | st.builds("({}//{})".format, inner, st.sampled_from(["2", "3", "-2", "7"]))
    ),
    max_leaves=12,
)
values = st.fixed_dictionaries({"N": st.integers(0, 50), "M": st.integers(0, 50), "batch": st.integers(0, 50)})


@given(expressions, values)
def test_the_canonical_text_has_the_same_value(text, known):
    canonical = str(parse_symbolic(text))
    assert eval(canonical, {}, known) == eval(text, {}, known)


@given(expressions)
def test_the_canonical_text_is_a_fixed_point(text):
    once = str(parse_symbolic(text))
    assert str(parse_symbolic(once)) == once


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("p+1-1", "p"),
        ("2*(N+1)//2", "N + 1"),
        ("(2*N+3)//2", "N + 1"),
        ("N//2*M", "M*(N//2)"),
        ("N*M//2", "(M*N)//2"),
        ("1-N", "-N + 1"),
        ("N-N", "0"),
        ("M*2+N*M", "M*N + 2*M"),
        ("N//(M+1)", "N//(M + 1)"),
        ("7", "7"),
        ("batch size", "batch size"),
        ("Max(1, s0)", "Max(1, s0)"),
        ("N//0", "N//0"),
    ],
)
def test_canonical(text, canonical):
    assert str(parse_symbolic(text)) == canonical


@pytest.mark.parametrize("text", ["", "?", " "])
def test_anonymous(text):
    assert parse_symbolic(text) is None


def test_an_odd_text_computes_as_one_symbol():
    assert str(parse_symbolic("batch size") + 1) == "batch size + 1"
    assert str(parse_symbolic("batch size") * 2) == "2*(batch size)"
    assert parse_symbolic("N") * 2 - parse_symbolic("N + N") == 0
    assert len({parse_symbolic("N + M"), parse_symbolic("M + N")}) == 1
    assert (10 // Symbolic({("N",): 1})).terms == {("10//N",): 1}
