"""Calls of kernels from TensorFlow: attributes and parameters of every kind, shapes, threads, errors."""

import inspect

import numpy as np
import pytest

import opforge as of
from opforge.errors import ArgumentError, DtypeError
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid
from tests.unit.expr.conversions import OPERATORS, VALUES, compare

tf = pytest.importorskip("tensorflow")


def normal(*shape, dtype="float32"):
    return tf.constant(np.random.default_rng(0).standard_normal(shape), dtype)


def gelu(x):
    return tf.nn.gelu(x, approximate=False)


def test_eager_and_traced(hand):
    x = normal(6, 10)
    np.testing.assert_allclose(hand.gelu(x), gelu(x), rtol=1e-5, atol=1e-6)
    traced = tf.function(lambda v: hand.gelu(v * 2.0) + 1.0)
    np.testing.assert_allclose(traced(x / 2), gelu(x) + 1.0, rtol=1e-5, atol=1e-6)


def test_every_floating_dtype_and_variables():
    x = normal(3, 4)
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        assert custom_gelu(tf.cast(x, dtype)).dtype == dtype
    np.testing.assert_array_equal(custom_gelu(tf.Variable(x)), custom_gelu(x))
    assert mod_sigmoid(tf.cast(x, tf.bfloat16), 0.5).dtype == tf.bfloat16
    assert mod_sigmoid(x, np.zeros(4, np.float32)).dtype == tf.float32


def test_optional_input_absent_and_present(hand):
    x, bias = normal(5, 4), normal(4)
    np.testing.assert_allclose(hand.add_bias(x, bias), x + bias)
    np.testing.assert_array_equal(hand.add_bias(x), x)
    traced = tf.function(lambda v: hand.add_bias(v, None))
    np.testing.assert_array_equal(traced(x), x)
    grad_x, absent = hand.add_offset_grad(tf.ones(4))
    assert absent is None
    assert grad_x.shape == (4,)
    assert hand.add_offset_grad(tf.ones(4), tf.ones(2))[1].shape == (2,)


def test_variadic_input_and_several_outputs(hand):
    for count in (1, 2, 5):
        tensors = [normal(3, 2) * float(k) for k in range(count)]
        total, largest = hand.total(tensors)
        np.testing.assert_allclose(total, np.sum(tensors, 0), rtol=1e-6)
        np.testing.assert_array_equal(largest, np.max(tensors, 0))


def test_zero_size_and_zero_rank(hand):
    assert hand.gelu(tf.zeros((0, 3))).shape == (0, 3)
    assert hand.gelu(tf.constant(1.0)).shape == ()
    da, db = hand.mul_rows_grad(tf.zeros((0, 3)), tf.zeros((0, 3)), tf.ones(3))
    assert da.shape == (0, 3)
    np.testing.assert_array_equal(db, np.zeros(3))


def test_index_dtypes_and_an_output_whose_size_depends_on_data(hand):
    for dtype in (tf.int32, tf.int64):
        assert hand.take(tf.range(5.0), tf.constant([4, 0, 4], dtype)).numpy().tolist() == [4, 0, 4]
    assert hand.nonzero(tf.constant([0.0, 1.0, 0.0, 2.0])).numpy().tolist() == [1, 3]
    traced = tf.function(lambda v: hand.nonzero(v))
    assert traced.get_concrete_function(tf.TensorSpec([4])).outputs[0].shape.as_list() == [None]
    assert traced(tf.zeros(4)).shape == (0,)


def test_attributes_of_every_kind_arrive(hand):
    facts = hand.attributes(tf.ones(1)).numpy().tolist()
    kinds = [float(i % 8 + 1) for i in range(13, 16)]
    assert facts == [3, float(np.float32(0.1)), 5, ord("5"), 1, 2, 5, 0, 0, 2, 1 + 2 * 2, 2, 1, *kinds]
    facts = hand.attributes(
        tf.ones(1),
        i=-(2**62),
        f=1e-3,
        s="grüße",
        b=False,
        li=[],
        lf=[0.1, 2.0],
        ls=["", "日本"],
        lb=[True, True, False],
    )
    small = float(np.float32(0.1))
    assert facts.numpy().tolist()[:13] == pytest.approx(
        [-(2.0**62), float(np.float32(1e-3)), 7, ord("e"), 0, 0, 0, 2, small + 4.0, 2, 2 * 6, 3, 3], rel=1e-7
    )
    assert hand.attributes(tf.ones(1), s="").numpy().tolist()[2:4] == [0, 0]
    traced = tf.function(lambda v: hand.attributes(v, li=[7, 8, 9], ls=[], lb=[]))
    assert traced(tf.ones(1)).numpy().tolist()[5:13] == [3, 7 + 16 + 27, 0, 0, 0, 0, 0, 0]


def test_shapes_of_traced_calls_are_inferred(hand):
    for given, expected in (([None, 4], [None, 4]), ([3, 4], [3, 4]), (None, None)):
        traced = tf.function(lambda v: custom_gelu(v))  # one that is traced already would take narrower shapes too
        shape = traced.get_concrete_function(tf.TensorSpec(given)).outputs[0].shape
        assert (None if shape.rank is None else shape.as_list()) == expected
    pair = tf.function(lambda a, b: mod_sigmoid(a, b))
    shape = pair.get_concrete_function(tf.TensorSpec([None, 1, 4]), tf.TensorSpec([3, 1])).outputs[0].shape
    assert shape.as_list() == [None, 3, 4]
    rows = tf.function(lambda a, b: hand.mul_rows(a, b))
    assert rows.get_concrete_function(tf.TensorSpec([None, None]), tf.TensorSpec([5])).outputs[0].shape.as_list() == [
        None,
        5,
    ]
    assert rows.get_concrete_function(tf.TensorSpec(None), tf.TensorSpec(None)).outputs[0].shape.rank == 2
    np.testing.assert_array_equal(rows(tf.ones((2, 3)), tf.ones(3)), np.ones((2, 3)))


def test_shapes_that_depend_on_attributes():
    from tests.unit.tensorflow.padded import padded

    assert padded(tf.ones(3), extra=2).numpy().tolist() == [1, 1, 1, 0, 0]
    traced = tf.function(lambda v: padded(v, extra=4))
    assert traced.get_concrete_function(tf.TensorSpec([3])).outputs[0].shape.as_list() == [7]
    assert traced.get_concrete_function(tf.TensorSpec([None])).outputs[0].shape.as_list() == [None]
    assert traced(tf.ones(2)).shape == (6,)


def test_chunks_do_not_depend_on_the_number_of_threads(hand):
    for grain in (1, 7, 100, 5000):
        expected = (np.arange(1001) // grain * grain).astype(np.float32)
        np.testing.assert_array_equal(hand.chunks(tf.zeros(1001), grain=grain), expected)


def test_errors_of_shapes_and_dtypes_are_ours(hand):
    with pytest.raises(ArgumentError, match=r"(?s)MulRows, argument b: dimension 0 is wrong.*n = 4.*got: 3"):
        hand.mul_rows(tf.ones((2, 4)), tf.ones(3))
    with pytest.raises(ArgumentError, match=r"(?s)MulRows, argument a: wrong rank.*rank 2.*rank 1"):
        hand.mul_rows(tf.ones(4), tf.ones(4))
    with pytest.raises(DtypeError, match=r"(?s)Gelu, argument x: wrong dtype.*T: f32, f64.*complex64"):
        hand.gelu(tf.ones(2, tf.complex64))
    with pytest.raises(DtypeError, match=r"(?s)Gelu, argument x: wrong dtype.*T: f32, f64.*i32"):
        hand.gelu(tf.ones(2, tf.int32))
    with pytest.raises(DtypeError, match=r"(?s)MulRows, argument b: wrong dtype.*f32, as T in argument a.*f64"):
        hand.mul_rows(tf.ones((2, 4)), tf.ones(4, tf.float64))
    with pytest.raises(ArgumentError, match=r"(?s)Gelu.*wrong number of inputs"):
        hand.gelu(tf.ones(2), tf.ones(2))
    with pytest.raises(Exception, match=r"(?s)MulRows, argument b: dimension 0 is wrong.*n = 4.*got: 3"):
        tf.function(lambda a, b: hand.mul_rows(a, b)).get_concrete_function(
            tf.TensorSpec([None, 4]), tf.TensorSpec([3])
        )


def test_errors_of_a_running_kernel_carry_its_words(hand):
    for call in (hand.take, tf.function(lambda v, i: hand.take(v, i))):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"test.hand::Take: indices\[1\] = 9 is out of range \[0, 3\)"
        ):
            call(tf.ones(3), tf.constant([0, 9]))
    traced = tf.function(lambda a, b: hand.mul_rows(a, b), input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)MulRows, argument b: dimension 0 is wrong"):
        traced(tf.ones((2, 4)), tf.ones(3))


def test_functions_have_signatures_and_words(hand):
    """Of a library without declarations in Python; operators themselves have theirs."""
    text = inspect.getdoc(hand.add_bias)
    assert text.splitlines()[0] == "test.hand::AddBias:1"
    assert "(x: T[m, n], bias?: T[n]) -> (y: T[m, n])" in text
    assert "T: f32 f64" in text
    assert (hand.add_bias.__name__, str(inspect.signature(hand.add_bias))) == ("add_bias", "(x, bias=None, /)")
    assert list(inspect.signature(hand.attributes).parameters) == ["x", "i", "f", "s", "b", "li", "lf", "ls", "lb"]
    assert str(inspect.signature(hand.total)) == "(xs, /)"


def test_the_name_is_registered_once():
    import opforge.tensorflow
    from opforge.schema import registry

    assert opforge.tensorflow.tensorflow_name("com.example", "CustomGELU", 1) == "ComExampleCustomGELUV1"
    first = of.formula("test.tf::Changing")(lambda x: x + 1.0)
    np.testing.assert_array_equal(first(tf.ones(2)), [2, 2])
    assert opforge.tensorflow.register(first) is opforge.tensorflow.register(first)
    registry.unregister(first)
    second = of.formula("test.tf::Changing")(lambda x: x + 2.0)
    with pytest.raises(ArgumentError, match=r"(?s)test.tf::Changing:1: another operator of this name is registered"):
        second(tf.ones(2))
    registry.unregister(second)
    clash = of.formula("test::TfChanging")(lambda x: x)
    with pytest.raises(ArgumentError, match=r"(?s)TestTfChangingV1: an operation of this name.*test.tf::Changing:1"):
        clash(tf.ones(2))
    registry.unregister(clash)


def test_xla_says_what_to_do():
    import opforge.tensorflow

    x = normal(3, 4)
    with pytest.raises(
        tf.errors.UnimplementedError, match=r"(?s)CustomGELU: jit_compile=True cannot compile.*decomposed"
    ):
        tf.function(lambda v: custom_gelu(v), jit_compile=True)(x)
    with opforge.tensorflow.decomposed():
        compiled = tf.function(lambda v: clip_sigmoid(custom_gelu(v), lo=0.2), jit_compile=True)
        result = compiled(x)
    np.testing.assert_allclose(result, clip_sigmoid(custom_gelu(x), lo=0.2), rtol=1e-6)


def test_addresses_are_what_a_kernel_asks_for(hand):
    x = np.arange(1001, dtype=np.float32)
    np.testing.assert_array_equal(hand.paged(tf.constant(x)), 2 * x)
    np.testing.assert_array_equal(tf.function(lambda v: hand.paged(v[1:]) + 1.0)(tf.constant(x)), 2 * x[1:] + 1)


@pytest.mark.parametrize("name", OPERATORS)
def test_conversions_of_the_decomposition(name):
    compare(name, [y.numpy() for y in OPERATORS[name].decomposed(tf.constant(VALUES))])
