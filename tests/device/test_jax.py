"""JAX on a GPU: parity with the CPU, gradients, order on its stream, graphs, exported functions."""

import numpy as np
import pytest

from opforge.ops import custom_gelu
from opforge.verify.cases import arrays, cases_of
from tests.device.members import choices, close, declared, draw, formulas, name_of

pytestmark = pytest.mark.gpu
CALLS = [(o, types) for o in declared() for types in choices(o)]


@pytest.fixture(scope="module")
def gpu():
    """The first GPU of JAX."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    try:
        return jax.devices("cuda")[0]
    except RuntimeError as error:
        pytest.skip(f"jax is a build for the CPU: {error}")


def compute(device, operator, given, attributes=None):
    """Run the operator on a device, with 64-bit types."""
    import jax

    from opforge.frameworks.jax._arrays import enable_x64

    with enable_x64(True):
        tensors = [None if a is None else jax.device_put(a, device) for a in given]
        found = jax.jit(lambda *t: operator(*t, **(attributes or {})))(*tensors)
        return [np.asarray(t) for t in (found if isinstance(found, tuple | list) else [found])]


@pytest.mark.parametrize(("operator", "types"), CALLS, ids=lambda v: name_of(v) if isinstance(v, dict) else v.name)
def test_parity_with_the_cpu(gpu, operator, types):
    import jax

    for case in cases_of(operator):
        given = arrays(operator, case, types, seed=0)
        found = compute(gpu, operator, given, case.attributes)
        close(operator, found, compute(jax.devices("cpu")[0], operator, given, case.attributes), factor=2)


@pytest.mark.parametrize("operator", formulas(), ids=lambda o: o.name)
def test_gradients(gpu, operator):
    import jax

    given = draw(operator, [(7, 33), (33,), (7, 1)][: len(operator.signature.inputs)])
    every = tuple(range(len(given)))
    gradient = jax.jit(jax.grad(lambda *t: operator(*t).sum(), argnums=every))
    found, right = (
        [np.asarray(g) for g in gradient(*(jax.device_put(a, d) for a in given))] for d in (gpu, jax.devices("cpu")[0])
    )
    close(operator.gradient_operator, found, right, factor=64)


def test_our_kernel_runs_on_the_gpu(gpu):
    import jax

    x = jax.device_put(draw(custom_gelu, [(4, 4)])[0], gpu)
    assert "custom_call @opforge_call" in jax.jit(lambda v: custom_gelu(v)).lower(x).as_text()
    assert custom_gelu(x).devices() == {gpu}


def test_calls_keep_their_order_on_the_stream(gpu):
    import jax

    (x,) = draw(custom_gelu, [(1 << 20,)])

    def chain(v):
        for _ in range(50):
            v = custom_gelu(v * 1.01)
        return v

    found, right = (np.asarray(jax.jit(chain)(jax.device_put(x, d))) for d in (gpu, jax.devices("cpu")[0]))
    close(custom_gelu, [found], [right], factor=100)


def test_a_function_that_was_exported_for_the_gpu(gpu):
    import jax
    from jax import export

    import opforge.jax

    (x,) = draw(custom_gelu, [(5, 3)])
    checks = opforge.jax.disabled_checks()
    saved = export.export(jax.jit(lambda v: custom_gelu(v)), platforms=["cuda"], disabled_checks=checks)(x)
    found = export.deserialize(saved.serialize()).call(jax.device_put(x, gpu))
    close(custom_gelu, [np.asarray(found)], [custom_gelu.reference(x.astype(np.float64))])


def test_empty_tensors(gpu):
    (y,) = compute(gpu, custom_gelu, [np.zeros((0, 3), np.float32)])
    assert y.shape == (0, 3)
