"""Attribute coercion beyond the golden vectors: values of other libraries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opforge.errors import ArgumentError, DtypeError
from opforge.schema import REQUIRED, Attribute, Signature
from opforge.schema.attributes import round_float
from opforge.schema.lexer import Cursor, format_literal


@given(st.floats(allow_nan=False))
def test_floats_are_float32(value):
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    assert round_float(value) == rounded
    if np.isfinite(value) and np.isinf(rounded):
        with pytest.raises(ArgumentError, match="value out of range"):
            Attribute("a", "float").coerce(value)
    else:
        assert Attribute("a", "float").coerce(value) == rounded


@given(st.floats(width=32, allow_nan=False))
def test_float_text_comes_back(value):
    text = format_literal(value)
    back = Cursor(text, "literal", "").literal()
    assert isinstance(back, float)
    assert round_float(back) == value
    assert len(text.strip("-")) <= len(repr(np.float32(abs(value)))) + 16


@given(st.text().filter(lambda s: s.isprintable()) | st.text(st.characters(codec="utf-8")))
def test_string_text_comes_back(value):
    assert Cursor(format_literal(value), "literal", "").literal() == value


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", np.int32(5), 5),
        ("int", np.uint8(5), 5),
        ("float", np.float32(0.1), float(np.float32(0.1))),
        ("float", np.float64(0.1), float(np.float32(0.1))),
        ("float", np.int64(3), 3.0),
        ("bool", np.bool_(True), True),
        ("ints", np.array([1, 2]), (1, 2)),
        ("ints", range(3), (0, 1, 2)),
        ("floats", np.array([0.5], np.float32), (0.5,)),
        ("strings", ("a", "b"), ("a", "b")),
        ("bools", np.array([True]), (True,)),
    ],
)
def test_other_libraries(kind, value, expected):
    got = Attribute("a", kind).coerce(value)
    assert got == expected
    assert all(type(g) in (int, float, str, bool) for g in (got if isinstance(got, tuple) else [got]))


@pytest.mark.parametrize(
    ("kind", "value", "got"),
    [
        ("int", np.array(3), "ndarray"),
        ("int", np.bool_(True), "bool"),
        ("float", np.array(0.5), "ndarray"),
        ("string", b"x", "bytes"),
        ("strings", b"x", "bytes"),
        ("float", None, "NoneType"),
        ("ints", None, "NoneType"),
        ("ints", {1: 2}, "dict"),
        ("int", 1j, "complex"),
        ("int", int, "type"),
    ],
)
def test_refused(kind, value, got):
    with pytest.raises(
        DtypeError, match=f"(?s)my::Op, attribute a: wrong attribute type.*expected: {kind}.*got: {got}"
    ):
        Attribute("a", kind).coerce(value, "my::Op")


def test_an_int_beyond_64_bits():
    with pytest.raises(ArgumentError, match="a 64-bit integer"):
        Attribute("a", "int").coerce(2**63)
    assert Attribute("a", "int").coerce(-(2**63)) == -(2**63)
    with pytest.raises(ArgumentError, match="a float32"):
        Attribute("a", "float").coerce(10**400)


def test_half_a_surrogate_pair_is_no_string():
    with pytest.raises(ArgumentError, match="not valid UTF-8"):
        Attribute("a", "string").coerce("\ud800")


def test_required_and_defaults():
    signature = Signature.parse("(x: T[n]; a: int, b: float = 0.5) -> (y: T[n])")
    required, optional = signature.attributes
    assert required.default is REQUIRED and required.required
    assert optional.default == 0.5 and not optional.required
    assert repr(REQUIRED) == "REQUIRED"
