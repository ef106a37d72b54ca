"""Kernels in LiteRT: attributes and parameters of every kind, shapes, dtypes, threads, and what is refused."""

import threading

import numpy as np
import pytest

from opforge.errors import ArgumentError, CorruptFileError, DtypeError, OpforgeError, UnsupportedError
from tests.unit.litert.conftest import options, write

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.compiler


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def test_dtypes_are_chosen_by_the_tensors(hand):
    for name, dtype in (("f32", np.float32), ("f64", np.float64)):
        session = hand("MulRows", {"a": (name, [None, 3]), "b": (name, [3])}, {"y": (name, [None, 3])})
        a, b = normal(4, 3, dtype=dtype), normal(3, dtype=dtype)
        y = session.run({"a": a, "b": b})["y"]
        np.testing.assert_array_equal(y, a * b)
        assert y.dtype == dtype


def test_shapes_may_change_from_run_to_run(hand):
    session = hand("MulRows", {"a": ("f32", [None, 3]), "b": ("f32", [3])}, {"y": ("f32", [None, 3])})
    assert session.inputs[0].shape == (None, 3)
    for rows in (2, 7, 1, 2, 400):
        a, b = normal(rows, 3), normal(3)
        np.testing.assert_array_equal(session.run({"a": a, "b": b})["y"], a * b)


def test_an_optional_input_is_there_or_not(hand):
    x, bias = normal(5, 4), normal(4)
    kinds, out = {"x": ("f32", [None, 4]), "b": ("f32", [4])}, {"y": ("f32", [None, 4])}
    given = options([1, 1])
    np.testing.assert_array_equal(hand("AddBias", kinds, out, given).run({"x": x, "b": bias})["y"], x + bias)
    for absent in (options([1, 0]), b""):
        session = hand("AddBias", {"x": kinds["x"]}, out, absent)
        np.testing.assert_array_equal(session.run({"x": x})["y"], x)


def test_an_optional_output_follows_its_input(hand):
    grad = np.ones(4, np.float32)
    both = {"g": ("f32", [4]), "o": ("f32", [2])}
    session = hand("AddOffsetGrad", both, {"x": ("f32", [4]), "d": ("f32", [2])})
    made = session.run({"g": grad, "o": np.zeros(2, np.float32)})
    assert [v.shape for v in made.values()] == [(4,), (2,)]
    np.testing.assert_array_equal(
        hand("AddOffsetGrad", {"g": both["g"]}, {"x": ("f32", [4])}).run({"g": grad})["x"], grad
    )


@pytest.mark.parametrize("count", [1, 2, 5])
def test_variadic_inputs_and_several_outputs(hand, count):
    inputs = {f"x{k}": ("f32", [None, 2]) for k in range(count)}
    session = hand("Total", inputs, {"s": ("f32", [None, 2]), "l": ("f32", [None, 2])}, options([count]))
    tensors = [normal(3, 2) * float(k) for k in range(count)]
    made = session.run(dict(zip(inputs, tensors, strict=True)))
    np.testing.assert_allclose(made["s"], np.sum(tensors, 0), rtol=1e-6)
    np.testing.assert_array_equal(made["l"], np.max(tensors, 0))


def test_variadic_outputs(hand):
    inputs = {n: ("f32", [3]) for n in ("g", "a", "b")}
    session = hand("Spread", inputs, {"p": ("f32", [3]), "q": ("f32", [3])}, options([1, 2]))
    g = normal(3)
    for value in session.run({"g": g, "a": g, "b": g}).values():
        np.testing.assert_array_equal(value, g)


def facts(hand, **attributes):
    kind = {"x": ("f32", [1])}, {"y": ("f64", [16])}
    return hand("Attributes", *kind, options(**attributes)).run({"x": np.ones(1, np.float32)})["y"].tolist()


def test_attributes_of_every_kind_and_their_defaults(hand):
    small = float(np.float32(0.1))
    kinds = [float(i % 8 + 1) for i in range(13, 16)]
    assert facts(hand) == [3, small, 5, ord("5"), 1, 2, 5, 0, 0, 2, 1 + 2 * 2, 2, 1, *kinds]
    given = {"i": -(2**62), "f": 1e-3, "s": "grüße", "b": False, "li": [7, 8, 9], "lf": [0.1, 2.0],
             "lb": [True, True, False], "ls": ["", "日本"]}  # fmt: skip
    expected = [-(2.0**62), float(np.float32(1e-3)), 7, ord("e"), 0, 3, 7 + 16 + 27, 2, small + 4.0, 2, 2 * 6, 3, 3]
    assert facts(hand, **given)[:13] == pytest.approx(expected, rel=1e-7)
    assert facts(hand, s="", li=[])[2:6] == [0, 0, 1, 0]


def test_wrong_attributes_are_refused_by_name(hand):
    for given, words in (
        ({"i": 0.5}, ("attribute i", "wrong attribute type", "int", "float")),
        ({"ls": [1]}, ("attribute ls", "wrong attribute type", "strings", "ints")),
        ({"nope": 1}, ("unknown attribute", "nope")),
    ):
        with pytest.raises((ArgumentError, DtypeError)) as caught:
            facts(hand, **given)
        assert all(word in str(caught.value) for word in ("test.hand::Attributes", *words))


def test_options_that_are_damaged_are_told(hand):
    whole = options(i=5, s="text", li=[1, 2, 3], lf=[0.5], ls=["a", "b"], f=2.5)
    kind = {"x": ("f32", [1])}, {"y": ("f64", [16])}
    seen = set()
    for size in range(1, len(whole), 3):
        try:
            hand("Attributes", *kind, whole[:size])
        except OpforgeError as problem:
            seen.add(type(problem))
    rng = np.random.default_rng(0)
    for _ in range(150):
        bad = bytearray(whole)
        for place in rng.integers(0, len(bad), 2):
            bad[place] = rng.integers(0, 256)
        try:
            hand("Attributes", *kind, bytes(bad))
        except OpforgeError as problem:
            seen.add(type(problem))
    assert CorruptFileError in seen and seen <= {CorruptFileError, ArgumentError, DtypeError}


def test_options_whose_lists_are_one_list_again_and_again(hand):
    # A map of n keys whose values all lead to one vector of n numbers: n * n numbers of a small file.
    n, data = 20_000, bytearray()
    data += b"k\0" + n.to_bytes(4, "little") + bytes(4 * n)
    items = len(data) - 4 * n
    keys = len(data) + 4
    data += n.to_bytes(4, "little") + b"".join((keys + 4 * k).to_bytes(4, "little") for k in range(n))
    data += (len(data) - keys).to_bytes(4, "little") + (4).to_bytes(4, "little") + n.to_bytes(4, "little")
    values = len(data)
    data += b"".join((values + 4 * k - items).to_bytes(4, "little") for k in range(n)) + bytes([11 << 2 | 2]) * n
    data += (len(data) - values).to_bytes(4, "little") + bytes([9 << 2 | 2, 4])
    with pytest.raises(CorruptFileError, match="cannot be read"):
        hand("Attributes", {"x": ("f32", [1])}, {"y": ("f64", [16])}, bytes(data))


def test_outputs_whose_size_depends_on_data_are_refused(hand):
    with pytest.raises(UnsupportedError, match=r"Nonzero.*size depends on data"):
        hand("Nonzero", {"x": ("f32", [4])}, {"y": ("i64", [4])})


def test_shapes_and_dtypes_that_contradict_the_operator(hand):
    session = hand("MulRows", {"a": ("f32", [None, 3]), "b": ("f32", [None])}, {"y": ("f32", [None, 3])})
    with pytest.raises(ArgumentError) as caught:
        session.run({"a": normal(2, 3), "b": normal(4)})
    assert all(word in str(caught.value) for word in ("test.hand::MulRows", "argument b", "3", "4"))
    np.testing.assert_array_equal(session.run({"a": normal(2, 3), "b": normal(3)})["y"], normal(2, 3) * normal(3))
    with pytest.raises(DtypeError) as caught:
        hand("MulRows", {"a": ("i32", [2, 3]), "b": ("i32", [3])}, {"y": ("i32", [2, 3])}).run(
            {"a": np.ones((2, 3), np.int32), "b": np.ones(3, np.int32)}
        )
    assert "argument a" in str(caught.value) and "i32" in str(caught.value)
    with pytest.raises(DtypeError, match="gives an output another dtype"):
        hand("Gelu", {"x": ("f32", [3])}, {"y": ("f64", [3])}).run({"x": normal(3)})
    with pytest.raises(ArgumentError, match="wrong number of inputs"):
        hand("Gelu", {"x": ("f32", [3]), "z": ("f32", [3])}, {"y": ("f32", [3])}).run({"x": normal(3), "z": normal(3)})
    with pytest.raises(ArgumentError, match="wrong number of outputs"):
        hand("Gelu", {"x": ("f32", [3])}, {"y": ("f32", [3]), "z": ("f32", [3])}).run({"x": normal(3)})


def test_a_kernel_that_fails_is_told_and_the_session_goes_on(hand):
    kinds = {"v": ("f32", [5]), "i": ("i32", [2])}, {"y": ("f32", [2])}
    session = hand("Take", *kinds)
    with pytest.raises(ArgumentError, match="Take"):
        session.run({"v": normal(5), "i": np.array([0, 9], np.int32)})
    assert session.run({"v": np.arange(5, dtype=np.float32), "i": np.array([4, 1], np.int32)})["y"].tolist() == [4, 1]


def test_zero_rank_and_no_elements(hand):
    session = hand("Gelu", {"x": ("f32", [])}, {"y": ("f32", [])})
    assert session.run({"x": np.float32(1)})["y"].shape == ()
    session = hand("Gelu", {"x": ("f32", [None, 3])}, {"y": ("f32", [None, 3])})
    with pytest.raises(UnsupportedError, match="at least one element"):
        session.run({"x": np.zeros((0, 3), np.float32)})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("grain", [7, 5000])
def test_chunks_do_not_depend_on_the_number_of_threads(hand, threads, grain):
    session = hand("Chunks", {"x": ("f32", [1001])}, {"y": ("f32", [1001])}, options(grain=grain), threads)
    expected = (np.arange(1001) // grain * grain).astype(np.float32)
    np.testing.assert_array_equal(session.run({"x": np.zeros(1001, np.float32)})["y"], expected)


def test_eight_threads_share_a_session_and_have_their_own(hand):
    kinds = {"a": ("f32", [None, 3]), "b": ("f32", [3])}, {"y": ("f32", [None, 3])}
    shared, problems = hand("MulRows", *kinds), []

    def work(seed):
        rng = np.random.default_rng(seed)
        own = hand("MulRows", *kinds)
        for session in (shared, own) * 10:
            a, b = rng.standard_normal((seed + 1, 3), np.float32), rng.standard_normal(3, np.float32)
            if not np.array_equal(session.run({"a": a, "b": b})["y"], a * b):
                problems.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_nodes_of_one_name_with_other_options_and_constants_are_prepared(hand):
    """As TensorFlow's converter writes them: one name, constants at any place."""
    import opforge.litert

    code, kinds = "test.hand::Chunks:1", {"x": ("f32", [20])}
    nodes = [(code, ["x"], [name], options(grain=grain)) for name, grain in (("y", 3), ("z", 7), ("w", 3))]
    nodes.append(("test.hand::Plus:1", ["y", "c"], ["s"], options([2])))
    made = {n: ("f32", [20]) for n in "yzws"}
    model = write(nodes, kinds, made, {"c": np.arange(20, dtype=np.float32)})
    chunks = {g: (np.arange(20) // g * g).astype(np.float32) for g in (3, 7)}
    for data in (model, opforge.litert.prepare(model)):
        got = opforge.litert.session(data).run({"x": np.zeros(20, np.float32)})
        for name, grain in (("y", 3), ("z", 7), ("w", 3)):
            np.testing.assert_array_equal(got[name], chunks[grain])
        np.testing.assert_array_equal(got["s"], chunks[3] + np.arange(20))
    prepared = opforge.litert.prepare(model)
    assert prepared != model and opforge.litert.prepare(prepared) == prepared


def test_an_absent_input_of_the_file_format_is_refused(hand):
    import opforge.litert

    nodes = [("test.hand::AddBias:1", ["x", ""], ["y"], b"")]
    with pytest.raises(UnsupportedError, match="absent input"):
        opforge.litert.session(write(nodes, {"x": ("f32", [2, 4])}, {"y": ("f32", [2, 4])}))


def test_addresses_are_what_a_kernel_asks_for(hand):
    x = np.arange(1001, dtype=np.float32)
    session = hand("Paged", {"x": ("f32", [None])}, {"y": ("f32", [None])})
    np.testing.assert_array_equal(session.run({"x": x[1:]})["y"], 2 * x[1:])
