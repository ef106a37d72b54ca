"""grad of any order, vmap, export, donation, several devices, and the pure-JAX body."""

import os
import subprocess
import sys

import numpy as np
import pytest

import opforge as of
from opforge.errors import ArgumentError, SchemaError, UnsupportedError
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid, sparse_matmul
from tests.unit.expr.conversions import OPERATORS, VALUES, compare

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
enable_x64 = pytest.importorskip("opforge.frameworks.jax._arrays").enable_x64
export = pytest.importorskip("jax.export")
check_grads = pytest.importorskip("jax.test_util").check_grads


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float64)


@pytest.fixture
def x64():
    with enable_x64(True):
        yield


CSR = ([0, 2, 1, 0, 2], [0, 2, 3, 5])


def csr_dense(values):
    dense = np.zeros((3, 3))
    for row in range(3):
        for k in range(CSR[1][row], CSR[1][row + 1]):
            dense[row, CSR[0][k]] += values[k]
    return dense


@pytest.mark.usefixtures("x64")
def test_gradients_of_first_and_second_order():
    x = normal(3, 4)
    check_grads(custom_gelu, (x,), order=2, modes=["rev"])
    check_grads(mod_sigmoid, (x, normal(4, seed=1)), order=2, modes=["rev"])
    indices, indptr = map(jnp.asarray, CSR)
    check_grads(
        lambda v, d: sparse_matmul(v, indices, indptr, d), (normal(5), normal(3, 2, seed=2)), order=2, modes=["rev"]
    )


@pytest.mark.usefixtures("x64")
def test_gradients_of_hand_written_programs(hand):
    check_grads(hand.gelu, (normal(3, 4),), order=2, modes=["rev"])
    check_grads(hand.mul_rows, (normal(3, 4), normal(4, seed=1)), order=2, modes=["rev"])
    tensors = [normal(3, seed=k) for k in range(3)]
    check_grads(lambda *xs: hand.plus([x * x for x in xs]), tensors, order=2, modes=["rev"])
    check_grads(hand.add_offset, (normal(4), normal(2)), order=1, modes=["rev"])
    check_grads(hand.add_offset, (normal(4),), order=1, modes=["rev"])


@pytest.mark.usefixtures("x64")
def test_gradients_get_attributes_of_every_kind():
    from tests.unit.tensorflow.kinds import weighed

    x = normal(3)
    for given in ({}, {"i": -4, "s": "ü", "b": False, "li": [], "lf": [0.5], "ls": ["", "xy"], "lb": [False, True]}):
        weight = float(weighed.reference(np.ones(1), **weighed.coerce(given))[0])
        slope = jax.grad(lambda v, given=given: (weighed(v, **given) ** 2).sum())(x)
        np.testing.assert_allclose(slope, 2 * weight**2 * x, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_only_what_is_asked_for_is_computed(hand):
    a, b = normal(3, 4), normal(4)
    indices, indptr = map(jnp.asarray, CSR)
    with_both = jax.jit(jax.grad(lambda v, d: sparse_matmul(v, indices, indptr, d).sum(), argnums=(0, 1)))
    with_one = jax.jit(jax.grad(lambda v, d: sparse_matmul(v, indices, indptr, d).sum()))
    calls = [f.lower(normal(5), normal(3, 2)).compile().as_text().count("opforge_call") for f in (with_both, with_one)]
    assert calls[1] < calls[0]
    np.testing.assert_allclose(jax.grad(lambda v: hand.mul_rows(a, v).sum())(b), a.sum(0))


def test_integer_inputs_have_float0_gradients():
    values, dense = jnp.ones(5), jnp.ones((3, 2))
    indices, indptr = jnp.asarray(CSR[0], jnp.int32), jnp.asarray(CSR[1], jnp.int32)
    _, backward = jax.vjp(sparse_matmul, values, indices, indptr, dense)
    found = backward(jnp.ones((3, 2)))
    assert [g.dtype for g in found] == [jnp.float32, jax.dtypes.float0, jax.dtypes.float0, jnp.float32]
    np.testing.assert_allclose(found[3], csr_dense(np.ones(5)).T @ np.ones((3, 2)))


def test_errors_of_gradients(hand):
    with pytest.raises(
        UnsupportedError, match=r"(?s)test.hand::SumRows: the operator is not differentiable.*stop_gradient"
    ):
        jax.grad(lambda v: hand.sum_rows(v).sum())(jnp.ones((3, 4)))
    with pytest.raises(SchemaError, match=r"(?s)WrongGradient, gradient of b: .*wrong shape.*correct gradient="):
        jax.grad(lambda v: hand.wrong_gradient(jnp.ones((3, 4)), v).sum())(jnp.ones(4))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(custom_gelu, (jnp.ones(3),), (jnp.ones(3),))


@pytest.mark.usefixtures("x64")
def test_vmap_broadcasts_formulas():
    x, t = normal(5, 3, 4), normal(5, seed=1)
    for in_axes, inputs in (((0, 0), (x, t)), ((0, None), (x, t[0])), ((None, 0), (x[0], t)), ((2, 0), (x, t[:4]))):
        got = jax.vmap(mod_sigmoid, in_axes)(*inputs)
        loop = [
            mod_sigmoid(*(v if a is None else jnp.take(v, k, a) for v, a in zip(inputs, in_axes, strict=True)))
            for k in range(got.shape[0])
        ]
        np.testing.assert_array_equal(got, np.stack(loop))
    text = str(jax.make_jaxpr(jax.vmap(mod_sigmoid))(x, t))
    assert "scan" not in text
    assert text.count("opforge_formula[") == 1


@pytest.mark.usefixtures("x64")
def test_vmap_of_gradients_sums_per_slice():
    x, t = normal(5, 3, 4), normal(5, seed=1)
    got = jax.vmap(jax.grad(lambda v, s: mod_sigmoid(v, s).sum(), argnums=(0, 1)))(x, t)
    shared = jax.vmap(jax.grad(lambda s, v: mod_sigmoid(v, s).sum()), (None, 0))(t[0], x)
    for k in range(5):
        dx, dt = jax.grad(lambda v, s: mod_sigmoid(v, s).sum(), argnums=(0, 1))(x[k], t[k])
        np.testing.assert_allclose(got[0][k], dx)
        np.testing.assert_allclose(got[1][k], dt)
        np.testing.assert_allclose(shared[k], jax.grad(lambda s, k=k: mod_sigmoid(x[k], s).sum())(t[0]))


@pytest.mark.usefixtures("x64")
def test_vmap_of_kernel_operators_goes_slice_by_slice(hand):
    a, b = normal(5, 3, 4), normal(5, 4, seed=1)
    np.testing.assert_allclose(jax.vmap(hand.mul_rows)(a, b), a * b[:, None])
    np.testing.assert_allclose(jax.vmap(hand.mul_rows, (0, None))(a, b[0]), a * b[0])
    assert jax.vmap(hand.mul_rows)(a[:0], b[:0]).shape == (0, 3, 4)
    values = normal(5, 5)
    indices, indptr = map(jnp.asarray, CSR)
    got = jax.vmap(sparse_matmul, (0, None, None, None))(values, indices, indptr, jnp.eye(3))
    np.testing.assert_allclose(got, np.stack([csr_dense(v) for v in np.asarray(values)]))


@pytest.mark.usefixtures("x64")
def test_nested_transformations():
    x = normal(4)
    hessian = jax.jit(jax.jacrev(jax.grad(lambda v: custom_gelu(v).sum())))(x)
    exact = jax.jacrev(jax.grad(lambda v: custom_gelu.decomposed(v).sum()))(x)
    np.testing.assert_allclose(hessian, exact, atol=1e-12)
    per_sample = jax.vmap(jax.jit(jax.grad(lambda v: custom_gelu(v * v).sum())))(normal(6, 3))
    assert per_sample.shape == (6, 3)
    checkpointed = jax.grad(lambda v: jax.checkpoint(custom_gelu)(v).sum())(x)
    np.testing.assert_allclose(checkpointed, jax.grad(lambda v: custom_gelu(v).sum())(x))
    scanned = jax.lax.scan(lambda c, v: (c + custom_gelu(v).sum(), v), 0.0, normal(3, 4))[0]
    np.testing.assert_allclose(scanned, custom_gelu(normal(3, 4)).sum())


@pytest.mark.usefixtures("x64")
def test_the_pure_body_differentiates_in_both_modes():
    x = normal(3, 4)
    pure = lambda v: custom_gelu.decomposed(jnp.asarray(v))  # noqa: E731 - check_grads passes NumPy arrays
    check_grads(pure, (x,), order=2, modes=["fwd", "rev"])
    pair = lambda v, t: mod_sigmoid.decomposed(jnp.asarray(v), jnp.asarray(t))  # noqa: E731
    check_grads(pair, (x, normal(4, seed=1)), order=2, modes=["fwd", "rev"])
    hessian = jax.hessian(lambda v: (custom_gelu.decomposed(v) ** 2).sum())(x[0])  # forward over reverse
    np.testing.assert_allclose(hessian, jax.jacrev(jax.grad(lambda v: (custom_gelu(v) ** 2).sum()))(x[0]), atol=1e-12)
    kinks = jnp.asarray([-3.0, np.log(0.1 / 0.9), 0.0, 3.0])
    ours = jax.grad(lambda v: clip_sigmoid(v).sum())(kinks)
    np.testing.assert_allclose(jax.grad(lambda v: clip_sigmoid.decomposed(v).sum())(kinks), ours, atol=1e-15)
    for dtype in (jnp.float16, jnp.bfloat16, jnp.float32):
        body, kernel = custom_gelu.decomposed(x.astype(dtype)), custom_gelu(x.astype(dtype))
        assert body.dtype == kernel.dtype == dtype
        np.testing.assert_allclose(
            body.astype(float), kernel.astype(float), rtol=2e-2 if dtype != jnp.float32 else 1e-6, atol=1e-6
        )


def test_the_pure_body_is_for_devices_without_a_kernel():
    """What is lowered for them names nothing of ours, gradients included."""
    spec = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    loss = lambda op: jax.jit(jax.grad(lambda v: op(v).sum()))  # noqa: E731
    pure = export.export(loss(custom_gelu.decomposed), platforms=["tpu", "cuda"])(spec)
    assert "custom_call" not in pure.mlir_module()
    assert "custom_call" not in export.export(loss(custom_gelu), platforms=["tpu"])(spec).mlir_module()
    with pytest.raises(ValueError, match="opforge_call"):
        export.export(loss(custom_gelu), platforms=["cpu"])(spec)


def test_the_pure_body_is_for_formulas():
    with pytest.raises(UnsupportedError, match="a kernel operator has no decomposition"):
        sparse_matmul.decomposed(jnp.ones(1))
    with pytest.raises(ArgumentError, match="a decomposition needs a framework's tensor"):
        custom_gelu.decomposed(np.ones(3))


def test_export_with_a_symbolic_batch_runs_in_a_fresh_process(tmp_path):
    shape = export.symbolic_shape("b, 4")
    whole = export.export(jax.jit(lambda v: custom_gelu(v) * 2), disabled_checks=of.jax.disabled_checks())(
        jax.ShapeDtypeStruct(shape, jnp.float32)
    )
    path = tmp_path / "gelu.jaxexport"
    path.write_bytes(whole.serialize(vjp_order=1))
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.asarray(custom_gelu(jnp.asarray(x)) * 2))
    code = (
        "import sys, jax, numpy as np\nfrom jax import export\n"
        "folder = sys.argv[1]\n"
        "f = export.deserialize(bytearray(open(folder + '/gelu.jaxexport', 'rb').read()))\n"
        "x = np.load(folder + '/x.npy')\n"
        "try:\n    f.call(x)\n"
        "except Exception as error:\n    print(type(error).__name__, 'opforge_call' in str(error))\n"
        "import opforge as of\nfrom opforge.ops import custom_gelu\n"
        "of.jax.register(custom_gelu)\n"
        "np.testing.assert_array_equal(f.call(x), np.load(folder + '/y.npy'))\n"
        "print(jax.grad(lambda v: f.call(v).sum())(x).shape, f.call(x[:1]).shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.endswith("True"), done.stdout
    assert second == "(3, 4) (1, 4)"


def test_donated_buffers_and_several_devices():
    code = (
        "import jax, jax.numpy as jnp, numpy as np\nfrom functools import partial\n"
        "from opforge.ops import custom_gelu\n"
        "x = jnp.linspace(-3, 3, 64).reshape(8, 8); expected = np.asarray(custom_gelu(x))\n"
        "f = jax.jit(custom_gelu, donate_argnums=0)\n"
        "y = jnp.array(x); np.testing.assert_array_equal(f(y), expected); assert y.is_deleted()\n"
        "assert len(jax.devices()) == 4\n"
        "for d in jax.devices():\n"
        "    moved = jax.device_put(x, d); z = custom_gelu(moved)\n"
        "    assert z.devices() == {d}; np.testing.assert_array_equal(z, expected)\n"
        "mesh = jax.make_mesh((4,), ('b',)); P = jax.sharding.PartitionSpec\n"
        "sharded = jax.device_put(x, jax.sharding.NamedSharding(mesh, P('b')))\n"
        "body = jax.shard_map(custom_gelu, mesh=mesh, in_specs=P('b'), out_specs=P('b'))\n"
        "np.testing.assert_array_equal(jax.jit(body)(sharded), expected)\n"
        "np.testing.assert_array_equal(jax.jit(custom_gelu)(sharded), expected)\n"
        "print('done')\n"
    )
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.split() == ["done"], done.stderr


def test_numbers_and_arrays_go_along():
    x = jnp.ones((2, 3), jnp.bfloat16)
    assert mod_sigmoid(x, 0.5).dtype == jnp.bfloat16
    assert mod_sigmoid(x, np.zeros(3, jnp.bfloat16)).dtype == jnp.bfloat16
    assert clip_sigmoid(x, lo=0.2, hi=0.8).dtype == jnp.bfloat16


def test_a_changed_operator_of_the_same_name_is_refused():
    import opforge.jax
    from opforge.schema import registry

    first = of.formula("test.jax::Changing")(lambda x: x + 1.0)
    np.testing.assert_array_equal(first(jnp.ones(2)), [2, 2])
    assert opforge.jax.register(first) is opforge.jax.register(first)
    registry.unregister(first)
    second = of.formula("test.jax::Changing")(lambda x: x + 2.0)
    with pytest.raises(
        ArgumentError, match=r"(?s)test.jax::Changing:1: another operator of this name is registered with JAX"
    ):
        second(jnp.ones(2))
    registry.unregister(second)


def test_a_name_is_no_operator():
    with pytest.raises(ArgumentError, match=r"(?s)opforge.jax: this is no operator.*got: 'Gelu'.*opforge.load"):
        of.jax.register("Gelu")


@pytest.mark.parametrize("name", OPERATORS)
def test_conversions_of_the_decomposition(name):
    with enable_x64(True):
        compare(name, OPERATORS[name].decomposed(jnp.asarray(VALUES)))
