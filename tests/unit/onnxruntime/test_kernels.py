"""Kernels in ONNX Runtime: attributes and parameters of every kind, shapes, threads, errors."""

import threading

import numpy as np
import pytest
from onnx import helper

from tests.unit.onnxruntime.conftest import DOUBLE, FLOAT, INT32, INT64, make_model

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.compiler


def version():
    import onnxruntime

    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, domain="test.hand", **attributes)


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def test_dtypes_are_registered_one_by_one(hand):
    for number, dtype in ((FLOAT, np.float32), (DOUBLE, np.float64)):
        model = make_model([node("MulRows", ["a", "b"], ["y"])], {"a": (number, ["N", 3]), "b": (number, [3])},
                           {"y": (number, None)})  # fmt: skip
        session = hand(model)
        a, b = normal(4, 3, dtype=dtype), normal(3, dtype=dtype)
        (y,) = session.run(None, {"a": a, "b": b})
        np.testing.assert_array_equal(y, a * b)
        assert y.dtype == dtype
        assert session.get_outputs()[0].shape == ["N", 3]


def test_mixed_dtypes(hand):
    for number, dtype in ((INT32, np.int32), (INT64, np.int64)):
        model = make_model([node("Take", ["v", "i"], ["y"])], {"v": (DOUBLE, ["N"]), "i": (number, ["K"])},
                           {"y": (DOUBLE, None)})  # fmt: skip
        session = hand(model)
        assert session.run(None, {"v": np.arange(5.0), "i": np.array([4, 0, 4], dtype)})[0].tolist() == [4, 0, 4]
        assert session.get_outputs()[0].shape == ["K"]


def test_an_optional_input_is_there_or_not(hand):
    x, bias = normal(5, 4), normal(4)
    given = {"x": (FLOAT, ["N", 4])}
    for names, expected in ((["x", "b"], x + bias), (["x"], x), (["x", ""], x)):
        inputs = given | ({"b": (FLOAT, [4])} if "b" in names else {})
        session = hand(make_model([node("AddBias", names, ["y"])], inputs, {"y": (FLOAT, ["N", 4])}))
        feeds = {"x": x, "b": bias} if "b" in names else {"x": x}
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)


def test_an_optional_output_follows_its_input(hand):
    grad = np.ones(4, np.float32)
    two = {"g": (FLOAT, [4]), "o": (FLOAT, [2])}
    session = hand(make_model([node("AddOffsetGrad", ["g", "o"], ["x", "d"])], two,
                              {"x": (FLOAT, [4]), "d": (FLOAT, [2])}))  # fmt: skip
    first, second = session.run(None, {"g": grad, "o": np.zeros(2, np.float32)})
    assert (first.shape, second.shape) == ((4,), (2,))
    session = hand(make_model([node("AddOffsetGrad", ["g"], ["x"])], {"g": (FLOAT, [4])}, {"x": (FLOAT, [4])}))
    np.testing.assert_array_equal(session.run(None, {"g": grad})[0], grad)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_variadic_inputs_and_several_outputs(hand, count):
    names = [f"x{k}" for k in range(count)]
    inputs = {name: (FLOAT, ["N", 2]) for name in names}
    session = hand(make_model([node("Total", names, ["s", "l"])], inputs, {"s": (FLOAT, None), "l": (FLOAT, None)}))
    tensors = [normal(3, 2) * float(k) for k in range(count)]
    total, largest = session.run(None, dict(zip(names, tensors, strict=True)))
    np.testing.assert_allclose(total, np.sum(tensors, 0), rtol=1e-6)
    np.testing.assert_array_equal(largest, np.max(tensors, 0))
    assert [o.shape for o in session.get_outputs()] == [["N", 2]] * 2


def test_variadic_outputs(hand):
    names = ["g", "a", "b"]
    inputs = {name: (FLOAT, [3]) for name in names}
    session = hand(make_model([node("Spread", names, ["p", "q"])], inputs, {"p": (FLOAT, [3]), "q": (FLOAT, [3])}))
    g = normal(3)
    for got in session.run(None, {"g": g, "a": g, "b": g}):
        np.testing.assert_array_equal(got, g)


def test_the_same_tensor_twice(hand):
    session = hand(make_model([node("Plus", ["x", "x", "x"], ["y"])], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])}))
    x = normal(3)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], 3 * x, rtol=1e-6)


def test_attributes_of_every_kind_and_their_defaults(hand):
    def facts(**attributes):
        model = make_model([node("Attributes", ["x"], ["y"], **attributes)], {"x": (FLOAT, [1])}, {"y": (DOUBLE, [16])})
        return hand(model).run(None, {"x": np.ones(1, np.float32)})[0].tolist()

    small = float(np.float32(0.1))
    kinds = [float(i % 8 + 1) for i in range(13, 16)]
    assert facts() == [3, small, 5, ord("5"), 1, 2, 5, 0, 0, 2, 1 + 2 * 2, 2, 1, *kinds]
    given = {"i": -(2**62), "f": 1e-3, "s": "grüße", "b": 0, "li": [7, 8, 9], "lf": [0.1, 2.0], "lb": [1, 1, 0]}
    texts = {"ls": ["", "日本"]} if version() >= (1, 25) else {}
    expected = [-(2.0**62), float(np.float32(1e-3)), 7, ord("e"), 0, 3, 7 + 16 + 27, 2, small + 4.0, 2]
    expected += [2 * 6, 3, 3] if texts else [1 + 2 * 2, 3, 3]
    assert facts(**given, **texts)[:13] == pytest.approx(expected, rel=1e-7)
    assert facts(s="")[2:4] == [0, 0]


def test_an_attribute_gives_a_dimension_and_data_give_one(hand):
    session = hand(make_model([node("Nonzero", ["x"], ["y"])], {"x": (FLOAT, ["N"])}, {"y": (INT64, None)}))
    assert session.run(None, {"x": np.array([0, 1, 0, 2], np.float32)})[0].tolist() == [1, 3]
    assert session.run(None, {"x": np.zeros(4, np.float32)})[0].shape == (0,)
    (dim,) = session.get_outputs()[0].shape
    assert isinstance(dim, str) and dim != "N"


def test_zero_size_and_zero_rank(hand):
    session = hand(make_model([node("Gelu", ["x"], ["y"])], {"x": (FLOAT, ["N", 3])}, {"y": (FLOAT, None)}))
    assert session.run(None, {"x": np.zeros((0, 3), np.float32)})[0].shape == (0, 3)
    session = hand(make_model([node("Gelu", ["x"], ["y"])], {"x": (FLOAT, [])}, {"y": (FLOAT, None)}))
    assert session.run(None, {"x": np.ones((), np.float32)})[0].shape == ()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("grain", [1, 7, 100, 5000])
def test_chunks_do_not_depend_on_the_number_of_threads(hand, threads, grain):
    model = make_model([node("Chunks", ["x"], ["y"], grain=grain)], {"x": (FLOAT, [1001])}, {"y": (FLOAT, [1001])})
    expected = (np.arange(1001) // grain * grain).astype(np.float32)
    np.testing.assert_array_equal(hand(model, threads).run(None, {"x": np.zeros(1001, np.float32)})[0], expected)


def test_chunks_run_in_the_pool_of_onnx_runtime(hand):
    """With one thread a session has no pool; with two, other threads than the caller take part now and then."""
    model = make_model([node("Gelu", ["x"], ["y"])], {"x": (FLOAT, [64])}, {"y": (FLOAT, [64])})
    one, two = (hand(model, threads) for threads in (1, 2))
    x = normal(64)
    np.testing.assert_array_equal(one.run(None, {"x": x})[0], two.run(None, {"x": x})[0])


def test_a_hundred_sessions_and_eight_threads(hand):
    model = make_model([node("Gelu", ["x"], ["t"]), node("MulRows", ["t", "b"], ["y"])],
                       {"x": (FLOAT, ["N", 3]), "b": (FLOAT, [3])}, {"y": (FLOAT, ["N", 3])})  # fmt: skip
    feeds = {"x": normal(4, 3), "b": normal(3)}
    (expected,) = hand(model).run(None, feeds)
    for _ in range(100):
        np.testing.assert_array_equal(hand(model).run(None, feeds)[0], expected)
    session = hand(model, 2)
    wrong = []

    def work():
        for _ in range(200):
            if not np.array_equal(session.run(None, feeds)[0], expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_in_a_branch_and_in_a_function(hand):
    yes = helper.make_graph([node("Gelu", ["x"], ["t"])], "yes", [], [helper.make_tensor_value_info("t", FLOAT, None)])
    no = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "no", [],
                           [helper.make_tensor_value_info("n", FLOAT, None)])  # fmt: skip
    function = helper.make_function(
        "local", "Twice", ["a"], ["c"], [node("Gelu", ["a"], ["b"]), node("Gelu", ["b"], ["c"])],
        [helper.make_opsetid("", 20), helper.make_opsetid("test.hand", 1)],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["w"], then_branch=yes, else_branch=no),
        helper.make_node("Twice", ["w"], ["y"], domain="local"),
    ]
    model = make_model(nodes, {"x": (FLOAT, ["N"]), "c": (9, [])}, {"y": (FLOAT, ["N"])},
                       (("test.hand", 1), ("local", 1)), functions=[function])  # fmt: skip
    plain = hand(make_model([node("Gelu", ["x"], ["y"])], {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])}))

    def gelu(x):
        return plain.run(None, {"x": x})[0]

    x = normal(5)
    session = hand(model)
    np.testing.assert_array_equal(session.run(None, {"x": x, "c": np.array(True)})[0], gelu(gelu(gelu(x))))
    np.testing.assert_array_equal(session.run(None, {"x": x, "c": np.array(False)})[0], gelu(gelu(-x)))


def test_shapes_are_inferred_through_symbols(hand):
    nodes = [node("MulRows", ["a", "b"], ["t"]), node("SumRows", ["t"], ["y"])]
    model = make_model(nodes, {"a": (FLOAT, ["N", "M"]), "b": (FLOAT, [5])}, {"y": (FLOAT, None), "t": (FLOAT, None)})
    session = hand(model)
    assert [o.shape for o in session.get_outputs()] == [[5], ["N", 5]], "a number says more than a name"
    inputs = {"a": (FLOAT, ["N", 3]), "b": (FLOAT, ["M", 3])}
    model = make_model([node("Total", ["a", "b"], ["s", "l"])], inputs, {"s": (FLOAT, None), "l": (FLOAT, None)})
    assert [o.shape for o in hand(model).get_outputs()] == [["N", 3]] * 2, "they are one size, whatever their names"


# ---- errors


def test_shapes_that_contradict_are_refused_at_load(hand):
    model = make_model([node("MulRows", ["a", "b"], ["y"])], {"a": (FLOAT, ["N", 4]), "b": (FLOAT, [3])},
                       {"y": (FLOAT, None)})  # fmt: skip
    with pytest.raises(Exception, match=r"(?s)test.hand::MulRows, argument b: dimension 0 is wrong.*n = 4.*got: 3"):
        hand(model)
    model = make_model([node("MulRows", ["a", "b"], ["y"])], {"a": (FLOAT, [4]), "b": (FLOAT, [3])},
                       {"y": (FLOAT, None)})  # fmt: skip
    with pytest.raises(Exception, match=r"(?s)argument a: wrong rank.*rank 2.*rank 1"):
        hand(model)


def test_shapes_that_contradict_are_refused_when_they_come(hand):
    model = make_model([node("MulRows", ["a", "b"], ["y"])], {"a": (FLOAT, ["N", "M"]), "b": (FLOAT, ["K"])},
                       {"y": (FLOAT, None)})  # fmt: skip
    session = hand(model)
    with pytest.raises(Exception, match=r"(?s)test.hand::MulRows, argument b: dimension 0 is wrong.*n = 4.*got: 3"):
        session.run(None, {"a": normal(2, 4), "b": normal(3)})
    np.testing.assert_array_equal(session.run(None, {"a": normal(2, 3), "b": np.ones(3, np.float32)})[0], normal(2, 3))


def test_a_dtype_without_a_kernel_is_refused_at_load(hand):
    model = make_model([node("Gelu", ["x"], ["y"])], {"x": (INT32, [3])}, {"y": (INT32, [3])})
    with pytest.raises(Exception, match=r"(?s)tensor\(int32\)|no kernel def matches"):
        hand(model)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"i": 1.5}, r"attribute i: wrong attribute type.*expected: int \(INT\).*got: FLOAT"),
        ({"f": 1}, r"attribute f: wrong attribute type.*expected: float \(FLOAT\).*got: INT"),
        ({"s": 1}, r"attribute s: wrong attribute type.*expected: string \(STRING\).*got: INT"),
        ({"li": 1}, r"attribute li: wrong attribute type.*expected: ints \(INTS\).*got: INT"),
        ({"lf": [1]}, r"attribute lf: wrong attribute type.*expected: floats \(FLOATS\).*got: INTS"),
        ({"b": "true"}, r"attribute b: wrong attribute type.*expected: bool \(INT\).*got: STRING"),
    ],
)
def test_an_attribute_of_another_type_is_refused_at_load(hand, given, words):
    model = make_model([node("Attributes", ["x"], ["y"], **given)], {"x": (FLOAT, [1])}, {"y": (DOUBLE, [16])})
    with pytest.raises(Exception, match=rf"(?s)test.hand::Attributes, {words}"):
        hand(model)


def test_errors_of_a_running_kernel_carry_its_words(hand):
    model = make_model([node("Take", ["v", "i"], ["y"])], {"v": (FLOAT, ["N"]), "i": (INT64, ["K"])},
                       {"y": (FLOAT, None)})  # fmt: skip
    session = hand(model)
    with pytest.raises(Exception, match=r"test.hand::Take: indices\[1\] = 9 is out of range \[0, 3\)"):
        session.run(None, {"v": np.ones(3, np.float32), "i": np.array([0, 9])})


def test_a_list_of_texts_needs_a_newer_onnx_runtime(hand):
    model = make_model([node("Attributes", ["x"], ["y"], ls=["a"])], {"x": (FLOAT, [1])}, {"y": (DOUBLE, [16])})
    if version() >= (1, 25):
        assert hand(model).run(None, {"x": np.ones(1, np.float32)})[0][9] == 1
    else:
        with pytest.raises(Exception, match=r"(?s)hands no list of texts to a kernel.*1\.25 or newer"):
            hand(model)


def test_addresses_are_what_a_kernel_asks_for(hand):
    x = np.arange(1001, dtype=np.float32)
    session = hand(make_model([node("Paged", ["x"], ["y"])], {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])}))
    np.testing.assert_array_equal(session.run(None, {"x": x[1:]})[0], 2 * x[1:])
