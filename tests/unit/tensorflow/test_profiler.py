"""TensorFlow's profiler shows our operators by their names, called eagerly and inside of a tf.function."""

from pathlib import Path

import pytest

from opforge.ops import custom_gelu

tf = pytest.importorskip("tensorflow")


def test_operators_carry_their_names(tmp_path: Path):
    x = tf.random.normal((64, 64))

    @tf.function
    def slope(value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            total = tf.reduce_sum(custom_gelu(value))
        return tape.gradient(total, value)

    slope(x), custom_gelu(x)  # the first calls compile
    tf.profiler.experimental.start(str(tmp_path))
    custom_gelu(x)
    slope(x)
    tf.profiler.experimental.stop()
    (file,) = tmp_path.rglob("*.xplane.pb")
    seen = file.read_bytes()  # names of events stand in it as they are
    assert b"EagerLocalExecute: ComExampleCustomGELUV1" in seen
    assert b"gradient_tape/ComExampleCustomGELUGradV1" in seen
