"""Symbolic dimensions: equal things look equal, and texts evaluate to what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opforge.passes._dims import Dim, parse, unknown

N, M = Dim.of("N"), Dim.of("M")


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (N + 0, "N"),
        (N * 2 + 1, "2*N+1"),
        (N - 1, "N-1"),
        (M * N, "M*N"),
        ((N * 4 + 3) // 2, "2*N+1"),
        ((N + 1) // 2, "((N+1)//2)"),
        (((N + 1) // 2 + 1) // 2, "((N+3)//4)"),
        (N * 6 // 3, "2*N"),
        (N * M // N, "M"),
        (N - N, "0"),
        (Dim.of(7) // 2, "3"),
    ],
)
def test_normal_form(dim, text):
    assert str(dim) == text


def test_equality_and_constants():
    assert N + M == M + N
    assert N * 2 == N + N
    assert Dim.of(3) == 3
    assert (N - N).constant == 0
    assert N != M
    assert hash(N + M) == hash(M + N)


def test_unknown_dimensions_differ():
    a, b = unknown(), unknown()
    assert a != b
    assert a == a + 0
    assert (a + 1).is_anonymous
    assert not N.is_anonymous


@pytest.mark.parametrize("value", [-1, "", "?", None])
def test_dimensions_without_a_name(value):
    assert parse(value).is_anonymous


def test_names_reach_into_floors():
    assert ((N + M) // 2 + 1).names == {"N", "M"}


@st.composite
def _pairs(draw):
    """A dimension and the number that the same operations give."""
    values = {"N": draw(st.integers(0, 40)), "M": draw(st.integers(0, 40))}
    dim, number = draw(st.sampled_from([(N, values["N"]), (M, values["M"]), (Dim.of(3), 3)]))
    for _ in range(draw(st.integers(1, 6))):
        other = draw(st.sampled_from([(N, values["N"]), (M, values["M"]), (Dim.of(2), 2)]))
        k = draw(st.integers(1, 5))
        dim, number = draw(
            st.sampled_from(
                [
                    (dim + other[0], number + other[1]),
                    (dim - k, number - k),
                    (dim * k, number * k),
                    (dim // k, number // k),
                ]
            )
        )
    return dim, number, values


@given(_pairs())
def test_text_means_what_was_computed(case):
    dim, number, values = case
    assert eval(str(dim), {}, values) == number
