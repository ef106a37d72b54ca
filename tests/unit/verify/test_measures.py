"""Differences of arrays, their words, and comparisons of engines that are plain functions."""

import numpy as np
import pytest

from opforge.engines import TensorInfo
from opforge.engines._inputs import check_names
from opforge.errors import ArgumentError, CheckFailure
from opforge.verify import compare, load_npz, measure, random_inputs
from opforge.verify._measures import explain


def test_figures():
    d = measure(np.array([1.0, 2.5, 4.0]), np.array([1.0, 2.0, 4.0]), rtol=1e-3, atol=0)
    assert (d.max_abs, d.max_rel, d.worst, d.passed) == (0.5, 0.25, (1,), False)
    assert d.mean_abs == pytest.approx(0.5 / 3)


def test_tolerance_is_of_the_reference():
    assert measure(np.array([1.01]), np.array([1.0]), rtol=0.0101, atol=0).passed
    assert not measure(np.array([1.01]), np.array([1.0]), rtol=0.0099, atol=0).passed


@pytest.mark.parametrize("got", [np.nan, np.inf, -np.inf, 1.0])
@pytest.mark.parametrize("expected", [np.nan, np.inf, -np.inf, 1.0])
def test_patterns(got, expected):
    d = measure(np.array([got, 0.0]), np.array([expected, 0.0]), rtol=1e9, atol=1e9)
    same = (np.isnan(got) and np.isnan(expected)) or got == expected
    assert d.passed == d.same_pattern == same


def test_words():
    a, b = np.array([[1.0, np.nan]]), np.array([[1.0, 3.0]])
    text = explain(measure(a, b, rtol=0, atol=0), a, b)
    assert text == "NaN or infinity at other places: 1 of 2, at [0, 1] nan, expected 3"
    a = np.array([[1.0, 2.0]])
    assert explain(measure(a, b, rtol=0, atol=0), a, b).startswith("max |error| 1 at [0, 1]: 2, expected 3")
    assert explain(measure(a, b.T, rtol=0, atol=0), a, b.T) == "shape [1, 2], expected [2, 1]"


def test_empty_arrays_agree():
    empty, nowhere = np.zeros((0, 3)), np.full(3, np.nan)
    assert measure(empty, empty, rtol=0, atol=0).passed
    assert explain(measure(empty, empty, rtol=0, atol=0), empty, empty) == "no elements"
    found = measure(nowhere, nowhere, rtol=0, atol=0)
    assert found.passed and explain(found, nowhere, nowhere) == "no element is finite in both"


def test_random_inputs_are_seeded_by_name():
    infos = [TensorInfo("x", np.dtype("f4"), ("N", 3)), TensorInfo("attention_mask", np.dtype("i8"), ("N", None))]
    one, two = (random_inputs(infos, seed=1, sizes={"N": 4, "attention_mask.1": 5}) for _ in range(2))
    assert one["x"].shape == (4, 3)
    assert one["attention_mask"].tolist() == np.ones((4, 5)).tolist()
    assert (one["x"] == two["x"]).all()
    assert (one["x"] != random_inputs(infos, seed=2, sizes={"N": 4})["x"]).any()


def test_unknown_dimension():
    with pytest.raises(ArgumentError) as caught:
        random_inputs([TensorInfo("x", np.dtype("f4"), ("N", 3))], sizes={"M": 4})
    assert "no input has a dimension M" in str(caught.value)
    assert "expected: one of N" in str(caught.value)


def test_input_names_with_the_nearest():
    with pytest.raises(ArgumentError) as caught:
        check_names(["input_id", "mask"], ["input_ids", "mask"])
    assert "there is no such input" in str(caught.value)
    assert "did you mean 'input_ids'?" in str(caught.value)
    with pytest.raises(ArgumentError, match=r"(?s)inputs are missing.*nothing for 'mask'"):
        check_names(["input_ids"], ["input_ids", "mask"])


def test_npz_without_pickles(tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.array([object()], dtype=object))
    with pytest.raises(ArgumentError, match="not an \\.npz file of plain arrays"):
        load_npz(tmp_path / "bad.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ArgumentError, match="not an \\.npz file of plain arrays"):
        load_npz(tmp_path / "text.npz")


def test_comparison_of_functions():
    def right(inputs):
        return {"y": inputs["x"] * 2, "z": inputs["x"]}

    def wrong(inputs):
        return {"y": inputs["x"] * 2, "z": inputs["x"] + np.array([0.0, 1.0])}

    x = {"x": np.array([1.0, 2.0])}
    assert compare("unused", x, engines={"a": right, "b": right})
    result = compare("unused", x, engines={"wrong": wrong, "right": right})
    assert [row.difference.passed for row in result.rows] == [True, False]
    with pytest.raises(CheckFailure) as caught:
        result.require()
    assert "wrong, output z: 1 of 2 outputs differ from right" in str(caught.value)
    assert "max |error| 1 at [1]: 3, expected 2" in str(caught.value)
    assert result.as_dict()["rows"][1]["max_abs"] == 1.0


def test_comparison_needs_two_engines_and_equal_outputs():
    with pytest.raises(ArgumentError, match=r"at least two engines\n  got: none\n  to do: name a second one"):
        compare("unused", None, engines={})
    with pytest.raises(ArgumentError, match="the engines give different outputs"):
        compare("unused", {}, engines={"a": lambda _: {"y": np.zeros(1)}, "b": lambda _: {"z": np.zeros(1)}})


def test_unknown_engine():
    with pytest.raises(
        ArgumentError, match=r"there is no engine 'onnxrutime'\n  expected: one of .*\n  to do: did you mean onnx"
    ):
        compare("unused", {}, engines=("onnxrutime",))
    with pytest.raises(ArgumentError, match="there is no engine 'tensorrt9'"):
        compare("unused", {}, engines=("tensorrt9", "opforge"))


def test_the_element_that_is_not_allowed_is_named_beside_the_largest_error():
    expected = np.array([5.0, 1e-4, 2.0])
    got = expected + np.array([3.6e-7, 2.5e-7, 0.0])
    difference = measure(got, expected, rtol=4e-6, atol=1e-7)
    assert not difference.passed
    assert explain(difference, got, expected) == (
        "max |error| 3.6e-07 at [0]: 5.00000036, expected 5; max relative 0.0025"
    )
    words = explain(difference, got, expected, (4e-6, 1e-7))
    assert ", which is allowed; not allowed is |error| 2.5e-07 at [1]: 0.00010025, expected 0.0001" in words
    assert words.endswith("(small beside the largest element: where terms cancel, digits are lost)")
    # Where the largest error is itself too large, that is all there is to say; NaN is no element to compare.
    got = np.array([6.0, np.nan, 2.0])
    expected[1] = np.nan
    assert "not allowed" not in explain(measure(got, expected, rtol=1e-6, atol=0), got, expected, (1e-6, 0.0))
    single = np.float64(2.0)
    assert "at []: 2, expected 1" in explain(
        measure(single, np.float64(1), rtol=0, atol=0), single, np.float64(1), (0, 0)
    )
