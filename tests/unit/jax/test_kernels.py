"""Calls of kernels from JAX: attributes and parameters of every kind, several outputs, threads, errors."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opforge.errors import ArgumentError, DtypeError, UnsupportedError

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
enable_x64 = pytest.importorskip("opforge.frameworks.jax._arrays").enable_x64

ROOT = Path(__file__).parents[3]


def normal(*shape, dtype=np.float32):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), dtype)


def test_our_declarations_of_the_interface_are_those_of_jaxlib():
    source = Path(__file__).with_name("ffi_layout.cc")
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{ROOT / 'adapters'}", f"-I{jax.ffi.include_dir()}", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_eager_and_compiled(hand):
    x = normal(6, 10)
    expected = jax.nn.gelu(x, approximate=False)
    np.testing.assert_allclose(hand.gelu(x), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jit(hand.gelu)(x.T), expected.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda v: hand.gelu(v * 2.0) + 1.0)(x / 2), expected + 1.0, rtol=1e-5, atol=1e-6)


def test_optional_input_absent_and_present(hand):
    x, bias = normal(5, 4), normal(4)
    np.testing.assert_allclose(hand.add_bias(x, bias), x + bias)
    np.testing.assert_array_equal(hand.add_bias(x), x)
    np.testing.assert_array_equal(jax.jit(lambda v: hand.add_bias(v, None))(x), x)


def test_variadic_input_and_several_outputs(hand):
    for count in (1, 2, 5):
        tensors = [normal(3, 2) * k for k in range(count)]
        total, largest = hand.total(tensors)
        np.testing.assert_allclose(total, sum(tensors), rtol=1e-6)
        np.testing.assert_array_equal(largest, np.stack(tensors).max(0))


def test_zero_size_and_zero_rank(hand):
    assert hand.gelu(jnp.zeros((0, 3))).shape == (0, 3)
    assert hand.gelu(jnp.float32(1)).shape == ()
    da, db = hand.mul_rows_grad(jnp.zeros((0, 3)), jnp.zeros((0, 3)), jnp.ones(3))
    assert da.shape == (0, 3)
    np.testing.assert_array_equal(db, np.zeros(3))


def test_index_dtypes(hand):
    assert hand.take(jnp.arange(5.0), jnp.array([4, 0, 4])).tolist() == [4, 0, 4]  # int32 without 64-bit types
    with enable_x64(True):
        assert hand.take(jnp.arange(5.0), jnp.array([4, 0, 4], jnp.int64)).tolist() == [4, 0, 4]


@pytest.fixture
def x64():
    with enable_x64(True):
        yield


def test_an_output_of_64_bits_needs_them_switched_on(hand):
    with pytest.raises(UnsupportedError, match=r"(?s)Attributes: an output has a 64-bit type.*jax_enable_x64"):
        hand.attributes(jnp.ones(1))


@pytest.mark.usefixtures("x64")
def test_attribute_defaults_arrive(hand):
    facts = hand.attributes(jnp.ones(1)).tolist()
    kinds = [float(i % 8 + 1) for i in range(13, 16)]
    assert facts == [3, float(np.float32(0.1)), 5, ord("5"), 1, 2, 5, 0, 0, 2, 1 + 2 * 2, 2, 1, *kinds]


@pytest.mark.usefixtures("x64")
def test_attributes_of_every_kind_arrive(hand):
    facts = hand.attributes(
        jnp.ones(1),
        i=-(2**62),
        f=1e-3,
        s="grüße",
        b=False,
        li=[],
        lf=[0.1, 2.0],
        ls=["", "日本"],
        lb=[True, True, False],
    ).tolist()
    small = float(np.float32(0.1))
    assert facts[:13] == pytest.approx(
        [-(2.0**62), float(np.float32(1e-3)), 7, ord("e"), 0, 0, 0, 2, small + 4.0, 2, 2 * 6, 3, 3], rel=1e-7
    )
    assert hand.attributes(jnp.ones(1), s="").tolist()[2:4] == [0, 0]
    assert hand.attributes(jnp.ones(1), li=[7, 8, 9], ls=[], lb=[]).tolist()[5:13] == [3, 7 + 16 + 27, 0, 0, 0, 0, 0, 0]


def test_a_traced_attribute_is_named(hand):
    with pytest.raises(
        ArgumentError, match=r"(?s)Chunks, attribute grain: an attribute must be known while tracing.*static"
    ):
        jax.jit(lambda x, n: hand.chunks(x, grain=n))(jnp.ones(3), 2)


def test_chunks_do_not_depend_on_the_number_of_threads(hand):
    for grain in (1, 7, 100, 5000):
        expected = (np.arange(1001) // grain * grain).astype(np.float32)
        np.testing.assert_array_equal(hand.chunks(jnp.zeros(1001), grain=grain), expected)


def test_many_calls_at_one_time_end(hand):
    """Kernels that wait for helpers in one pool must not wait for each other."""
    code = (
        "import threading, jax, jax.numpy as jnp, numpy as np\n"
        "from opforge.ops import custom_gelu\n"
        "x = jnp.linspace(-3, 3, 200_000)\n"
        "expected = np.asarray(custom_gelu(x))\n"
        "f = jax.jit(lambda v: [custom_gelu(v + 0.0 * k) for k in range(8)])\n"
        "def work():\n"
        "    for _ in range(10):\n"
        "        for y in f(x): np.testing.assert_array_equal(y, expected)\n"
        "threads = [threading.Thread(target=work) for _ in range(6)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout.split()[-1:] == ["done"], done.stderr


def test_errors_while_tracing_are_ours(hand):
    with pytest.raises(ArgumentError, match=r"(?s)MulRows, argument b: dimension 0 is wrong.*n = 4.*got: 3"):
        hand.mul_rows(jnp.ones((2, 4)), jnp.ones(3))
    with pytest.raises(ArgumentError, match=r"(?s)MulRows, argument a: wrong rank.*rank 2.*rank 1"):
        jax.jit(hand.mul_rows)(jnp.ones(4), jnp.ones(4))
    with pytest.raises(DtypeError, match=r"(?s)Gelu, argument x: wrong dtype.*T: f32, f64.*complex64"):
        hand.gelu(jnp.ones(2, jnp.complex64))
    with pytest.raises(DtypeError, match=r"(?s)Gelu, argument x: wrong dtype.*T: f32, f64.*i32"):
        hand.gelu(jnp.ones(2, jnp.int32))
    with pytest.raises(DtypeError, match=r"(?s)MulRows, argument b: wrong dtype.*f32, as T in argument a.*bf16"):
        hand.mul_rows(jnp.ones((2, 4)), jnp.ones(4, jnp.bfloat16))
    with pytest.raises(ArgumentError, match=r"(?s)Gelu.*wrong number of inputs"):
        hand.gelu(jnp.ones(2), jnp.ones(2))


def test_errors_of_a_running_kernel_carry_its_words(hand):
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT: test.hand::Take: indices\[1\] = 9 is out of"
    ):
        hand.take(jnp.ones(3), jnp.array([0, 9])).block_until_ready()


def test_an_output_whose_size_depends_on_data_is_refused(hand):
    with pytest.raises(UnsupportedError, match=r"(?s)Nonzero: an output's size depends on data.*NumPy arrays"):
        hand.nonzero(jnp.ones(3))


def test_an_unknown_key_is_named():
    import opforge.jax

    with pytest.raises(ArgumentError, match=r"test.hand::None:1: the operator is not registered with JAX"):
        opforge.jax.function("test.hand::None:1")


def test_addresses_are_what_a_kernel_asks_for(hand):
    x = jnp.arange(1001, dtype=jnp.float32)
    np.testing.assert_array_equal(hand.paged(x), 2 * x)
    np.testing.assert_array_equal(jax.jit(lambda v: hand.paged(v + 1.0)[1:])(x), 2 * (x + 1)[1:])
