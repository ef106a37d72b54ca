"""Gradients of first and second order, Jacobians, vectorized_map, and what raises."""

import numpy as np
import pytest

from opforge.errors import SchemaError, UnsupportedError
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid, sparse_matmul

tf = pytest.importorskip("tensorflow")

CSR = (tf.constant([0, 2, 1, 0, 2], tf.int64), tf.constant([0, 2, 3, 5], tf.int64))

EVERY_KIND = {"i": -4, "f": 0.5, "s": "ü", "b": False, "li": [], "lf": [0.5], "ls": ["", "xy"], "lb": [False, True]}


def normal(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float64)


def gradient(function, inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = function(*inputs)
    return tape.gradient(value, inputs)


def numeric(function, inputs, k, eps=1e-6):
    """Central differences of a scalar function."""
    base = inputs[k].numpy()
    found = np.zeros_like(base)
    for index in np.ndindex(base.shape):
        values = []
        for step in (eps, -eps):
            moved = base.copy()
            moved[index] += step
            values.append(float(function(*inputs[:k], tf.constant(moved), *inputs[k + 1 :])))
        found[index] = (values[0] - values[1]) / (2 * eps)
    return found


def check(function, inputs, wrap=lambda f: f):
    """First and second derivatives of a weighted sum against differences."""
    weight = normal(*function(*inputs).shape, seed=9)
    scalar = wrap(lambda *v: tf.reduce_sum(weight * function(*v)))
    first = gradient(scalar, inputs)
    for k, got in enumerate(first):
        np.testing.assert_allclose(got, numeric(scalar, inputs, k), rtol=1e-5, atol=1e-7)
    directions = [normal(*v.shape, seed=10 + k) for k, v in enumerate(inputs)]
    along = wrap(
        lambda *v: tf.add_n([tf.reduce_sum(g * d) for g, d in zip(gradient(scalar, v), directions, strict=True)])
    )
    for k, got in enumerate(gradient(along, inputs)):
        np.testing.assert_allclose(got, numeric(along, inputs, k), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "traced"])
def test_first_and_second_order(wrap):
    check(custom_gelu, (normal(2, 3),), wrap)
    check(mod_sigmoid, (normal(2, 3), normal(3, seed=1)), wrap)
    check(clip_sigmoid, (normal(2, 2),), wrap)
    check(lambda v, d: sparse_matmul(v, *CSR, d), (normal(5), normal(3, 2, seed=2)), wrap)


def test_hand_written_programs(hand):
    check(hand.gelu, (normal(2, 3),))
    check(hand.mul_rows, (normal(2, 3), normal(3, seed=1)))
    check(lambda *xs: hand.plus([x * x for x in xs]), tuple(normal(3, seed=k) for k in range(3)))
    x, offset = normal(4), normal(2)
    for got, expected in zip(
        gradient(lambda *v: tf.reduce_sum(hand.add_offset(*v)), (x, offset)), (1.0, None), strict=True
    ):
        assert expected is None or np.all(got.numpy() == expected)
    assert np.all(gradient(lambda v: tf.reduce_sum(hand.add_offset(v)), (x,))[0].numpy() == 1.0)


def test_only_what_is_asked_for(hand):
    a, b = normal(3, 4), normal(4)
    with tf.GradientTape() as tape:
        tape.watch(b)
        y = hand.mul_rows(a, b)
    np.testing.assert_allclose(tape.gradient(y, b), tf.reduce_sum(a, 0))


def test_jacobian_and_vectorized_map():
    x = normal(3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = custom_gelu(x)
    jacobian = tape.jacobian(y, x)
    slope = gradient(lambda v: tf.reduce_sum(custom_gelu(v)), (x,))[0]
    np.testing.assert_allclose(jacobian, np.diag(slope), atol=1e-15)

    @tf.function
    def second(v):
        with tf.GradientTape() as outer:
            outer.watch(v)
            slope = gradient(lambda u: tf.reduce_sum(custom_gelu(u)), (v,))[0]
        return outer.jacobian(slope, v)

    eps = 1e-6
    steps = [(gradient(lambda u: tf.reduce_sum(custom_gelu(u)), (x + s * eps,))[0]) for s in (1, -1)]
    np.testing.assert_allclose(second(x), np.diag((steps[0] - steps[1]) / (2 * eps)), atol=1e-8)
    rows = normal(5, 3)
    np.testing.assert_array_equal(tf.vectorized_map(custom_gelu, rows), custom_gelu(rows))
    traced = tf.function(lambda r: tf.vectorized_map(lambda v: mod_sigmoid(v, v[:1]), r))
    np.testing.assert_allclose(traced(rows), mod_sigmoid(rows, rows[:, :1]))


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "traced"])
@pytest.mark.parametrize("given", [{}, EVERY_KIND], ids=["defaults", "all"])
def test_gradients_get_attributes_of_every_kind(wrap, given):
    from tests.unit.tensorflow.kinds import weighed

    x = normal(3)
    weight = float(weighed.reference(np.ones(1), **weighed.coerce(given))[0])
    slope = wrap(lambda v: gradient(lambda u: tf.reduce_sum(weighed(u, **given) ** 2), (v,))[0])
    np.testing.assert_allclose(slope(x), 2 * weight**2 * x, rtol=1e-12)


def test_errors(hand):
    with pytest.raises(
        UnsupportedError, match=r"(?s)test.hand::SumRows: the operator is not differentiable.*stop_gradient"
    ):
        gradient(lambda v: tf.reduce_sum(hand.sum_rows(v)), (tf.ones((3, 4)),))
    with pytest.raises(SchemaError, match=r"(?s)WrongGradient, gradient of b: .*wrong shape.*correct gradient="):
        gradient(lambda v: tf.reduce_sum(hand.wrong_gradient(tf.ones((3, 4)), v)), (tf.ones(4),))


def test_the_decomposition_has_the_same_gradients():
    kinks = tf.constant([-3.0, float(np.log(0.1 / 0.9)), 0.0, 3.0], tf.float64)
    for op, inputs in (
        (custom_gelu, (normal(2, 3),)),
        (mod_sigmoid, (normal(2, 3), normal(3))),
        (clip_sigmoid, (kinks,)),
    ):
        np.testing.assert_allclose(op.decomposed(*inputs), op(*inputs), rtol=1e-12)
        ours = gradient(lambda *v, op=op: tf.reduce_sum(op(*v)), inputs)
        pure = gradient(lambda *v, op=op: tf.reduce_sum(op.decomposed(*v)), inputs)
        for a, b in zip(ours, pure, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)
    check(custom_gelu.decomposed, (normal(2, 2),))
    traced = tf.function(lambda a, b: mod_sigmoid.decomposed(a, b))
    shape = traced.get_concrete_function(tf.TensorSpec([None, 4]), tf.TensorSpec([4])).outputs[0].shape
    assert shape.as_list() == [None, 4]
