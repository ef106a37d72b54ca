"""TensorFlow on a GPU: parity with the CPU, gradients, order on its stream, where nodes are placed."""

import numpy as np
import pytest

from opforge.ops import custom_gelu
from opforge.verify.cases import arrays, cases_of
from tests.device.members import choices, close, declared, draw, formulas, name_of

pytestmark = pytest.mark.gpu
CALLS = [(o, types) for o in declared() for types in choices(o)]


@pytest.fixture(scope="module")
def tf():
    """TensorFlow, where it has a GPU."""
    found = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    if not found.config.list_physical_devices("GPU"):
        built = "" if found.test.is_built_with_cuda() else ": a build for the CPU"
        pytest.skip(f"tensorflow sees no GPU{built}")
    return found


def compute(tf, device, operator, given, attributes=None):
    """Run the operator on a device, in a function."""
    with tf.device(device):
        tensors = [None if a is None else tf.constant(a) for a in given]
        found = tf.function(lambda: operator(*tensors, **(attributes or {})))()
        return [t.numpy() for t in (found if isinstance(found, tuple | list) else [found])]


@pytest.mark.parametrize(("operator", "types"), CALLS, ids=lambda v: name_of(v) if isinstance(v, dict) else v.name)
def test_parity_with_the_cpu(tf, operator, types):
    for case in cases_of(operator):
        given = arrays(operator, case, types, seed=0)
        found, right = (compute(tf, f"/{d}:0", operator, given, case.attributes) for d in ("GPU", "CPU"))
        close(operator, found, right, factor=2)


@pytest.mark.parametrize("operator", formulas(), ids=lambda o: o.name)
def test_gradients(tf, operator):
    given = draw(operator, [(7, 33), (33,), (7, 1)][: len(operator.signature.inputs)])

    def gradients(device):
        with tf.device(device), tf.GradientTape() as tape:
            tensors = [tf.constant(a) for a in given]
            tape.watch(tensors)
            total = tf.reduce_sum(operator(*tensors))
        return [g.numpy() for g in tape.gradient(total, tensors)]

    close(operator.gradient_operator, gradients("/GPU:0"), gradients("/CPU:0"), factor=64)


def test_eager_calls_run_on_the_gpu(tf):
    with tf.device("/GPU:0"):
        assert "GPU:0" in custom_gelu(tf.constant([1.0, 2.0])).device


def test_calls_keep_their_order_on_the_stream(tf):
    (x,) = draw(custom_gelu, [(1 << 20,)])

    @tf.function
    def chain(v):
        for _ in range(50):
            v = custom_gelu(v * 1.01)
        return v

    found = []
    for device in ("/GPU:0", "/CPU:0"):
        with tf.device(device):
            found.append(chain(tf.constant(x)).numpy())
    close(custom_gelu, found[:1], found[1:], factor=100)


def test_empty_tensors(tf):
    (y,) = compute(tf, "/GPU:0", custom_gelu, [np.zeros((0, 3), np.float32)])
    assert y.shape == (0, 3)
