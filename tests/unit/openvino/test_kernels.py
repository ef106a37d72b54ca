"""Kernels in OpenVINO: attributes and parameters of every kind, dtypes, shapes, threads, errors."""

import threading

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.unit.onnxruntime.conftest import DOUBLE, FLOAT, INT32, INT64, make_model
from tests.unit.openvino.conftest import branches

openvino = pytest.importorskip("openvino")
pytestmark = pytest.mark.compiler


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, domain="test.hand", **attributes)


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def test_dtypes_that_the_plugin_changes(hand):
    """f64 arrives as f32, for which there is a kernel; the model's outputs keep their dtype."""
    for number, dtype in ((FLOAT, np.float32), (DOUBLE, np.float64)):
        model = make_model([node("MulRows", ["a", "b"], ["y"])], {"a": (number, ["N", 3]), "b": (number, [3])},
                           {"y": (number, None)})  # fmt: skip
        a, b = normal(4, 3, dtype=dtype), normal(3, dtype=dtype)
        (y,) = hand(model).run({"a": a, "b": b})
        np.testing.assert_allclose(y, a * b, rtol=1e-6)
        assert y.dtype == dtype


def test_indices_of_both_widths(hand):
    for number, dtype in ((INT32, np.int32), (INT64, np.int64)):
        model = make_model([node("Take", ["v", "i"], ["y"])], {"v": (DOUBLE, ["N"]), "i": (number, ["K"])},
                           {"y": (DOUBLE, None)})  # fmt: skip
        (y,) = hand(model).run({"v": np.arange(5.0), "i": np.array([4, 0, 4], dtype)})
        assert y.tolist() == [4, 0, 4]


def test_an_optional_input_is_there_or_not(hand):
    x, bias = normal(5, 4), normal(4)
    given = {"x": (FLOAT, ["N", 4])}
    for names, expected in ((["x", "b"], x + bias), (["x"], x), (["x", ""], x)):
        inputs = given | ({"b": (FLOAT, [4])} if "b" in names else {})
        compiled = hand(make_model([node("AddBias", names, ["y"])], inputs, {"y": (FLOAT, ["N", 4])}))
        feeds = {"x": x, "b": bias} if "b" in names else {"x": x}
        np.testing.assert_array_equal(compiled.run(feeds)[0], expected)


def test_an_optional_output_follows_its_input(hand):
    grad = np.ones(4, np.float32)
    two = {"g": (FLOAT, [4]), "o": (FLOAT, [2])}
    compiled = hand(make_model([node("AddOffsetGrad", ["g", "o"], ["x", "d"])], two,
                               {"x": (FLOAT, [4]), "d": (FLOAT, [2])}))  # fmt: skip
    first, second = compiled.run({"g": grad, "o": np.zeros(2, np.float32)})
    assert (first.shape, second.shape) == ((4,), (2,))
    compiled = hand(make_model([node("AddOffsetGrad", ["g"], ["x"])], {"g": (FLOAT, [4])}, {"x": (FLOAT, [4])}))
    np.testing.assert_array_equal(compiled.run({"g": grad})[0], grad)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_variadic_inputs_and_several_outputs(hand, count):
    names = [f"x{k}" for k in range(count)]
    inputs = {name: (FLOAT, ["N", 2]) for name in names}
    compiled = hand(make_model([node("Total", names, ["s", "l"])], inputs, {"s": (FLOAT, None), "l": (FLOAT, None)}))
    tensors = [normal(3, 2) * float(k) for k in range(count)]
    total, largest = compiled.run(dict(zip(names, tensors, strict=True)))
    np.testing.assert_allclose(total, np.sum(tensors, 0), rtol=1e-6)
    np.testing.assert_array_equal(largest, np.max(tensors, 0))


def test_variadic_outputs(hand):
    names = ["g", "a", "b"]
    inputs = {name: (FLOAT, [3]) for name in names}
    compiled = hand(make_model([node("Spread", names, ["p", "q"])], inputs, {"p": (FLOAT, [3]), "q": (FLOAT, [3])}))
    g = normal(3)
    for got in compiled.run({"g": g, "a": g, "b": g}):
        np.testing.assert_array_equal(got, g)


def test_the_same_tensor_twice_and_constants(hand):
    compiled = hand(make_model([node("Plus", ["x", "x", "x"], ["y"])], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])}))
    x = normal(3)
    np.testing.assert_allclose(compiled.run({"x": x})[0], 3 * x, rtol=1e-6)
    constant = helper.make_tensor("w", DOUBLE, [3], [1.0, 2.0, 3.0])
    nodes = [node("Plus", ["w", "w"], ["t"]), helper.make_node("Add", ["t", "x"], ["y"])]
    compiled = hand(make_model(nodes, {"x": (DOUBLE, [3])}, {"y": (DOUBLE, [3])}, constants=[constant]))
    assert compiled.run({"x": np.zeros(3)})[0].tolist() == [2, 4, 6]


def facts(run):
    return run({"x": np.ones(1, np.float32)})[0].tolist()


ATTRIBUTES = {
    "i": -(2**62), "f": 1e-3, "s": 'grüße "&<\n\t', "b": 0, "li": [7, 8, 9], "lf": [0.1, 2.0, 1e-30, 3e37],
    "ls": ["", "日本", 'a,b "c"'], "lb": [1, 1, 0],
}  # fmt: skip


def attributes_model(**attributes):
    return make_model([node("Attributes", ["x"], ["y"], **attributes)], {"x": (FLOAT, [1])}, {"y": (DOUBLE, [16])})


def test_attributes_of_every_kind_and_their_defaults(hand):
    small = float(np.float32(0.1))
    kinds = [float(i % 8 + 1) for i in range(13, 16)]
    assert facts(hand(attributes_model()).run) == [3, small, 5, ord("5"), 1, 2, 5, 0, 0, 2, 1 + 2 * 2, 2, 1, *kinds]
    expected = [-(2.0**62), float(np.float32(1e-3)), len(ATTRIBUTES["s"].encode()), ord("\t"), 0, 3, 7 + 16 + 27, 4]
    sums = sum((k + 1) * float(np.float32(v)) for k, v in enumerate(ATTRIBUTES["lf"]))
    texts = sum((k + 1) * len(t.encode()) for k, t in enumerate(ATTRIBUTES["ls"]))
    assert facts(hand(attributes_model(**ATTRIBUTES)).run)[:13] == [
        *expected,
        pytest.approx(sums),
        3,
        texts,
        3,
        3,
    ]
    assert facts(hand(attributes_model(s="")).run)[2:4] == [0, 0]


def test_an_ir_holds_everything_exactly(hand, tmp_path):
    for attributes in ({}, ATTRIBUTES):
        compiled = hand(attributes_model(**attributes))
        openvino.save_model(compiled.model, tmp_path / "m.xml", compress_to_fp16=False)
        assert facts(hand(str(tmp_path / "m.xml")).run) == facts(compiled.run)
    assert 'type="test.hand::Attributes" version="opforge:1"' in (tmp_path / "m.xml").read_text()
    x, bias = normal(5, 4), normal(4)
    for names in (["x", "b"], ["x"]):
        feeds = {"x": x, "b": bias}
        inputs = {name: (FLOAT, ["N", 4] if name == "x" else [4]) for name in names}
        compiled = hand(make_model([node("AddBias", names, ["y"])], inputs, {"y": (FLOAT, ["N", 4])}))
        openvino.save_model(compiled.model, tmp_path / "m.xml", compress_to_fp16=False)
        again = hand(str(tmp_path / "m.xml"))
        feeds = {name: feeds[name] for name in names}
        np.testing.assert_array_equal(again.run(feeds)[0], compiled.run(feeds)[0])
        assert again.shapes() == compiled.shapes()


def test_a_cached_model_keeps_what_its_nodes_were_made_with(hand, tmp_path):
    """The cache holds the model after the plugin has changed its dtypes."""
    model = make_model([node("Take", ["v", "i"], ["t"]), node("Nonzero", ["t"], ["y"])],
                       {"v": (DOUBLE, ["N"]), "i": (INT64, ["K"])}, {"y": (INT64, None)})  # fmt: skip
    feeds = {"v": np.arange(5.0), "i": np.array([4, 0, 4])}
    for _ in range(2):
        assert hand(model, CACHE_DIR=str(tmp_path)).run(feeds)[0].tolist() == [0, 2]
    assert list(tmp_path.glob("*.blob"))


def test_data_give_a_dimension_and_indices_go_on(hand):
    """An output in i64 without an input that would tell of the plugin's i32; it meets other integers behind."""
    compiled = hand(make_model([node("Nonzero", ["x"], ["y"])], {"x": (FLOAT, ["N"])}, {"y": (INT64, None)}))
    assert compiled.run({"x": np.array([0, 1, 0, 2], np.float32)})[0].tolist() == [1, 3]
    assert compiled.run({"x": np.zeros(4, np.float32)})[0].shape == (0,)
    assert compiled.shapes() == ["[?]"]
    one = helper.make_tensor("one", INT64, [], [1])
    nodes = [node("Nonzero", ["x"], ["t"]), helper.make_node("Add", ["t", "one"], ["s"]),
             helper.make_node("Gather", ["x", "t"], ["g"]), helper.make_node("Add", ["s", "k"], ["y"])]  # fmt: skip
    model = make_model(nodes, {"x": (FLOAT, ["N"]), "k": (INT64, [1])}, {"y": (INT64, None), "g": (FLOAT, None)},
                       constants=[one])  # fmt: skip
    y, g = hand(model).run({"x": np.array([0, 1, 0, 2], np.float32), "k": np.array([10])})
    assert (y.tolist(), y.dtype, g.tolist()) == ([12, 14], np.int64, [1, 2])


def test_zero_size_and_zero_rank(hand):
    compiled = hand(make_model([node("Gelu", ["x"], ["y"])], {"x": (FLOAT, ["N", 3])}, {"y": (FLOAT, None)}))
    assert compiled.run({"x": np.zeros((0, 3), np.float32)})[0].shape == (0, 3)
    compiled = hand(make_model([node("Gelu", ["x"], ["y"])], {"x": (FLOAT, [])}, {"y": (FLOAT, None)}))
    assert compiled.run({"x": np.ones((), np.float32)})[0].shape == ()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("grain", [1, 7, 100, 5000])
def test_chunks_do_not_depend_on_the_number_of_threads(hand, threads, grain):
    model = make_model([node("Chunks", ["x"], ["y"], grain=grain)], {"x": (FLOAT, [1001])}, {"y": (FLOAT, [1001])})
    expected = (np.arange(1001) // grain * grain).astype(np.float32)
    np.testing.assert_array_equal(hand(model, threads).run({"x": np.zeros(1001, np.float32)})[0], expected)


def test_many_models_and_eight_threads(hand):
    model = make_model([node("Gelu", ["x"], ["t"]), node("MulRows", ["t", "b"], ["y"])],
                       {"x": (FLOAT, ["N", 3]), "b": (FLOAT, [3])}, {"y": (FLOAT, ["N", 3])})  # fmt: skip
    feeds = {"x": normal(4, 3), "b": normal(3)}
    (expected,) = hand(model).run(feeds)
    for _ in range(20):
        np.testing.assert_array_equal(hand(model).run(feeds)[0], expected)
    compiled = hand(model, 2, PERFORMANCE_HINT="THROUGHPUT", NUM_STREAMS=2).compiled
    wrong = []

    def work(rows):
        request = compiled.create_infer_request()
        x = np.resize(feeds["x"], (rows, 3))
        for _ in range(100):
            request.infer({"x": x, "b": feeds["b"]})
            if not np.array_equal(request.get_output_tensor(0).data, np.resize(expected, (rows, 3))):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(4 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@branches
def test_in_a_branch(hand):
    yes = helper.make_graph([node("Gelu", ["x"], ["t"])], "yes", [], [helper.make_tensor_value_info("t", FLOAT, None)])
    no = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "no", [],
                           [helper.make_tensor_value_info("n", FLOAT, None)])  # fmt: skip
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)]
    model = make_model(nodes, {"x": (FLOAT, ["N"]), "c": (TensorProto.BOOL, [])}, {"y": (FLOAT, ["N"])})
    plain = hand(make_model([node("Gelu", ["x"], ["y"])], {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])}))
    x = normal(5)
    compiled = hand(model)
    np.testing.assert_array_equal(compiled.run({"x": x, "c": np.array(True)})[0], plain.run({"x": x})[0])
    np.testing.assert_array_equal(compiled.run({"x": x, "c": np.array(False)})[0], -x)


def test_shapes_are_inferred_from_bounds_and_symbols(hand):
    nodes = [node("MulRows", ["a", "b"], ["t"]), node("SumRows", ["t"], ["y"])]
    model = make_model(nodes, {"a": (FLOAT, ["N", "M"]), "b": (FLOAT, [5])}, {"y": (FLOAT, None), "t": (FLOAT, None)})
    assert hand(model).shapes() == ["[5]", "[?,5]"], "a number says more than an unknown size"
    read = hand(model).model
    read.reshape({"a": openvino.PartialShape([openvino.Dimension(1, 8), -1])})
    assert str(read.outputs[1].get_partial_shape()) == "[1..8,5]"
    with pytest.raises(Exception, match=r"(?s)argument b: dimension 0 is wrong"):
        read.reshape({"a": openvino.PartialShape([2, 4])})


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
    compiled = hand(model)
    with pytest.raises(Exception, match=r"(?s)test.hand::MulRows, argument b: dimension 0 is wrong.*n = 4.*got: 3"):
        compiled.run({"a": normal(2, 4), "b": normal(3)})
    np.testing.assert_array_equal(compiled.run({"a": normal(2, 3), "b": np.ones(3, np.float32)})[0], normal(2, 3))


def test_a_dtype_without_a_kernel_is_refused_at_load(hand):
    model = make_model([node("Gelu", ["x"], ["y"])], {"x": (INT32, [3])}, {"y": (INT32, [3])})
    with pytest.raises(Exception, match=r"(?s)test.hand::Gelu, argument x: wrong dtype.*T: f32, f64.*got: i32"):
        hand(model)
    model = make_model([node("Gelu", ["x"], ["y"])], {"x": (TensorProto.STRING, [3])}, {"y": (TensorProto.STRING, [3])})
    with pytest.raises(Exception, match=r"(?s)test.hand::Gelu, argument x: wrong dtype.*T: f32, f64.*got: string"):
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
    with pytest.raises(Exception, match=rf"(?s)test.hand::Attributes, {words}"):
        hand(attributes_model(**given))


def test_a_damaged_ir_is_refused(hand, tmp_path):
    compiled = hand(attributes_model(li=[1, 2]))
    openvino.save_model(compiled.model, tmp_path / "m.xml", compress_to_fp16=False)
    text = (tmp_path / "m.xml").read_text()
    for old, new, words in (
        ('li="[1, 2]"', 'li="[1, two]"', r"attribute li: syntax error in an attribute.*a literal"),
        ('li="[1, 2]"', 'li="1.5"', r"attribute li: wrong attribute type.*expected: ints.*got: float"),
        ('opforge_inputs="f32"', 'opforge_inputs="f31"', r"attribute opforge_inputs: unknown word.*got: f31"),
        ('opforge_inputs="f32"', 'opforge_inputs="f32 f32"', r"Attributes: wrong number of inputs"),
    ):
        assert old in text
        (tmp_path / "m.xml").write_text(text.replace(old, new))
        with pytest.raises(Exception, match=rf"(?s){words}"):
            hand(str(tmp_path / "m.xml"))


def test_errors_of_a_running_kernel_carry_its_words(hand):
    model = make_model([node("Take", ["v", "i"], ["y"])], {"v": (FLOAT, ["N"]), "i": (INT64, ["K"])},
                       {"y": (FLOAT, None)})  # fmt: skip
    compiled = hand(model)
    with pytest.raises(Exception, match=r"test.hand::Take: indices\[1\] = 9 is out of range \[0, 3\)"):
        compiled.run({"v": np.ones(3, np.float32), "i": np.array([0, 9])})


def test_addresses_are_what_a_kernel_asks_for(hand):
    x = np.arange(1001, dtype=np.float32)
    compiled = hand(make_model([node("Paged", ["x"], ["y"])], {"x": (FLOAT, ["N"])}, {"y": (FLOAT, ["N"])}))
    np.testing.assert_array_equal(compiled.run({"x": x[1:]})[0], 2 * x[1:])
