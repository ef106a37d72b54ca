"""CUDA in JAX as far as a CPU allows: what functions are lowered to, and the handler in a fake of XLA."""

import ctypes
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import opforge.jax
from opforge.build import load_library
from opforge.errors import BuildError, ToolchainError
from opforge.frameworks.jax._adapter import TARGET, adapter
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid, swish
from tests import device_notes, launched
from tests.unit.jax.fake_xla import Xla

pytestmark = pytest.mark.compiler


def lowered(function, *arrays, platforms=("cuda",)) -> str:
    checks = opforge.jax.disabled_checks()
    return str(export.export(jax.jit(function), platforms=platforms, disabled_checks=checks)(*arrays).mlir_module())


def refuse(plan):
    raise ToolchainError("no nvcc", where=plan.name)


X = jnp.linspace(-2, 2, 12, dtype=jnp.float32).reshape(3, 4)


def test_lowered_for_cuda_without_a_gpu_it_is_the_custom_call(monkeypatch):
    built = device_notes.emulate_builds(monkeypatch)
    text = lowered(lambda x: swish(x, beta=2.0), X)
    call = re.search(rf"custom_call @{TARGET}\(.*backend_config = \{{(.*?)\}}", text)
    assert call is not None
    assert f'operator = "{swish.key}"' in call[1]
    assert "a_beta = 2.0" in call[1]
    assert len(built) <= 1  # another test may have had it built
    gradient = lowered(jax.grad(lambda x: swish(x).sum()), X)
    assert f'operator = "{swish.gradient_operator.key}"' in gradient
    (n,) = export.symbolic_shape("n")
    assert f"custom_call @{TARGET}" in lowered(swish, jax.ShapeDtypeStruct((n, 4), np.float32))
    assert len(built) <= 1  # one library holds all of them


def test_without_kernels_a_formula_is_lowered_to_itself(monkeypatch):
    device_notes.replace_builder(monkeypatch, refuse)
    text = lowered(lambda x: mod_sigmoid(x, x[0]), X)
    assert TARGET not in text
    assert "stablehlo.exponential" in text
    gradient = lowered(jax.grad(lambda t: mod_sigmoid(X, t).sum()), X[0])
    assert TARGET not in gradient
    assert "stablehlo.reduce" in gradient  # summed to the shape of the threshold


def test_that_a_kernel_does_not_compile_is_told(monkeypatch):
    def broken(plan):
        raise BuildError("nvcc refuses it", where=plan.name)

    device_notes.replace_builder(monkeypatch, broken)
    with pytest.warns(RuntimeWarning, match=r"runs as a formula on the GPU(?s:.*)nvcc refuses it"):
        text = lowered(lambda x: clip_sigmoid(x, lo=0.25), X)
    assert TARGET not in text
    assert "2.500000e-01" in text


def test_platforms_together(monkeypatch):
    device_notes.replace_builder(monkeypatch, refuse)
    checks = opforge.jax.disabled_checks()
    saved = export.export(jax.jit(mod_sigmoid), platforms=("cpu", "cuda", "tpu"), disabled_checks=checks)(X, X[0])
    text = str(saved.mlir_module())
    assert TARGET in text
    assert "stablehlo.exponential" in text
    again = export.deserialize(saved.serialize())
    np.testing.assert_array_equal(again.call(X, X[0]), mod_sigmoid(X, X[0]))


def test_nothing_is_built_for_cuda_unless_it_is_lowered_for(monkeypatch):
    asked = []
    device_notes.replace_builder(monkeypatch, asked.append)
    jax.grad(lambda x: mod_sigmoid(x, x).sum())(X)
    lowered(mod_sigmoid, X, X, platforms=("cpu",))
    assert asked == []


def test_operators_with_kernels_are_custom_calls_everywhere(hand):
    assert f"custom_call @{TARGET}" in lowered(hand.add_bias, X, X[0])


def test_outside_of_jit():
    expected = mod_sigmoid(X, X[0])
    with jax.disable_jit():
        np.testing.assert_array_equal(mod_sigmoid(X, X[0]), expected)


# ---- the handler


@pytest.fixture(scope="module")
def handler():
    function = adapter()._library.opforge_jax_call_cuda
    function.restype = ctypes.c_void_p
    return function


@pytest.fixture(scope="module")
def double(tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    paths = [device_notes.build(folder, device) for device in (1, 2)]
    for path in paths:
        opforge.jax.register_library(load_library(path))
    return paths


def test_a_kernel_gets_stream_device_and_scratch(handler, double):
    seen = device_notes.notes(double[1])
    before = seen.calls
    xla = Xla(device=3)
    np.testing.assert_array_equal(xla.call(handler, "test.device::Double:1", X), 2 * np.asarray(X))
    assert seen.calls == before + 1
    device_notes.check(seen, 3, set(xla.memory))
    assert len(xla.memory) == 2


def test_tensors_on_the_cpu_run_the_cpu_kernel(double):
    cpu, cuda = map(device_notes.notes, double)
    before = cpu.calls, cuda.calls
    np.testing.assert_array_equal(opforge.jax.function("test.device::Double:1")(X), 2 * X)
    assert (cpu.calls, cuda.calls) == (before[0] + 1, before[1])
    assert (cpu.stream, cpu.context_type) == (None, 1)


def test_what_goes_wrong_has_words(handler, double):
    seen = device_notes.notes(double[1])
    xla = Xla()
    seen.fail = 3
    with pytest.raises(RuntimeError, match=r"^12: test.device::Double: the test's failure"):
        xla.call(handler, "test.device::Double:1", X)
    seen.fail = 0
    xla.refuse_memory = True
    with pytest.raises(RuntimeError, match=r"^8: test.device::Double: no memory on the GPU"):
        xla.call(handler, "test.device::Double:1", X)
    xla = Xla()
    xla.table.size -= 8
    with pytest.raises(
        RuntimeError, match=r"^12: (?s:.*)does not name a call's device(?s:.*)pip install --upgrade jax"
    ):
        xla.call(handler, "test.device::Double:1", X)


def test_kernels_of_a_formula_in_the_handler(handler, monkeypatch):
    device_notes.emulate_builds(monkeypatch)
    opforge.jax.register(swish)
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    got = Xla(device=0).call(handler, swish.key, x, a_beta=1.5)
    np.testing.assert_allclose(got, swish.reference(x, beta=1.5), rtol=1e-5)


def test_kernels_of_the_launcher_in_the_handler(handler, tmp_path, monkeypatch):
    library, driver = launched.bent(monkeypatch, tmp_path)
    opforge.jax.register_library(library)
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    got = Xla(device=3).call(handler, launched.bend.key, x, a_slope=0.25)
    np.testing.assert_allclose(got, launched.bend.reference(x, slope=0.25), rtol=1e-6)
    seen = launched.seen(driver)
    assert (seen.device, seen.stream) == (3, device_notes.STREAM)
    with pytest.raises(RuntimeError, match=r"^3: test.launched::Bend: no such GPU: CUDA_ERROR_INVALID_DEVICE \(101\)"):
        Xla(device=8).call(handler, launched.bend.key, x, a_slope=0.25)


def test_without_a_kernel_the_handler_says_what_is_missing(handler, monkeypatch):
    device_notes.replace_builder(monkeypatch, refuse)
    opforge.jax.register(custom_gelu)
    with pytest.raises(
        RuntimeError, match=r"^12: (?s:.*)kernels for cuda are not built(?s:.*)no nvcc(?s:.*)--device cuda"
    ):
        Xla().call(handler, custom_gelu.key, X)
