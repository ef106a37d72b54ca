"""PyTorch on a GPU: values against the reference, streams, graphs, autograd, autocast, devices, errors.

They run on the route that this process takes; the last one runs them all on the other.
"""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from opforge.errors import ArgumentError, DtypeError, UnsupportedError
from opforge.ops import custom_gelu, swish
from opforge.verify.cases import arrays, cases_of
from tests.device.formulas import gate
from tests.device.members import choices, close, declared, draw, family, formulas, name_of, right

torch = pytest.importorskip("torch")
import opforge.torch  # noqa: E402
from opforge.frameworks.torch._arrays import to_numpy, to_tensor  # noqa: E402

WHY = f"torch {torch.__version__} is built without CUDA" if torch.version.cuda is None else "torch finds no GPU"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=f"no GPU for PyTorch: {WHY}"),
]

CALLS = [(o, types) for o in declared() for types in choices(o)]
TWO = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="no GPU beside the first")
LONG = 200_000_000  # clock cycles: a tenth of a second


def send(array, device="cuda"):
    """Give a tensor on the GPU with the array's strides."""
    if array is None:
        return None
    source = to_tensor(np.asarray(array))
    return torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device=device).copy_(source)


def fetch(result):
    return [to_numpy(t.cpu()) for t in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize(("operator", "types"), CALLS, ids=lambda v: name_of(v) if isinstance(v, dict) else v.name)
def test_values_of_every_case_in_every_dtype(operator, types):
    for case in cases_of(operator):
        given = arrays(operator, case, types, seed=1)
        result = operator(*map(send, given), **case.attributes)
        assert all(t.is_cuda for t in (result if isinstance(result, tuple) else (result,)))
        close(operator, fetch(result), right(operator, given, case.attributes))


def test_kernels_serve_both_devices_in_turn():
    (x,) = draw(swish, [(1000,)])
    for _ in range(3):
        np.testing.assert_allclose(swish(send(x)).cpu(), swish(to_tensor(x)), rtol=1e-5, atol=1e-6)


LAYOUTS = {
    "transposed": lambda t: t.t(),
    "sliced": lambda t: t[::2],
    "columns": lambda t: t[:, 1::3],
    "offset": lambda t: t[1:, 3:],
    "expanded": lambda t: t[:1].expand(7, 20),
    "ranks": lambda t: t[None, :, None],
    "0-d": lambda t: t[0, 0],
    "empty": lambda t: t[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    x = send(draw(custom_gelu, [(12, 20)])[0])
    given = LAYOUTS[layout](x)
    result = custom_gelu(given)
    assert (result.shape, result.device) == (given.shape, given.device)
    close(custom_gelu, fetch(result), right(custom_gelu, [to_numpy(given.cpu())]))


def test_more_elements_than_32_bits_count():
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("less than 12 GB of memory are free")
    count = (1 << 31) + 9
    x = torch.empty(count, dtype=torch.float16, device="cuda")
    x[-9:] = torch.arange(-4, 5, device="cuda")
    x[:9] = x[-9:]
    y = custom_gelu(x)
    torch.testing.assert_close(y[-9:], custom_gelu(x[-9:].clone()))
    torch.testing.assert_close(y[:9], y[-9:])
    del x, y
    torch.cuda.empty_cache()


# ---- autograd


@pytest.mark.parametrize("operator", formulas(), ids=lambda o: o.name)
def test_gradients_against_finite_differences(operator):
    shapes = [(3, 4), (4,), (3, 1)][: len(operator.signature.inputs)]
    leaves = [torch.randn(s, dtype=torch.float64, device="cuda").requires_grad_() for s in shapes]
    assert torch.autograd.gradcheck(operator, leaves)


@pytest.mark.parametrize("operator", [custom_gelu, gate], ids=lambda o: o.name)
def test_second_gradients(operator):
    assert len(family(operator)) == 3
    shapes = [(3, 4), (4,), (3, 1)][: len(operator.signature.inputs)]
    leaves = [torch.randn(s, dtype=torch.float64, device="cuda").requires_grad_() for s in shapes]
    assert torch.autograd.gradgradcheck(operator, leaves)


@pytest.mark.parametrize(("operator", "types"), CALLS, ids=lambda v: name_of(v) if isinstance(v, dict) else v.name)
def test_gradients_are_those_of_the_cpu(operator, types):
    if not operator.gradient or {d.name for d in types.values()} & {"f16", "bf16"}:
        pytest.skip("not differentiable, or in a dtype whose gradients are compared by test_derivatives_of_formulas")
    for case in cases_of(operator):
        if not case.finite:
            continue
        given = arrays(operator, case, types, seed=2)
        found, expected = (_gradients(operator, [place(a) for a in given], case.attributes) for place in (send, _cpu))
        for one, other in zip(found, expected, strict=True):
            assert one.is_cuda
            scale = other.abs().max().item() if other.numel() else 0.0
            tolerance = 1e-10 if other.dtype == torch.float64 else 2e-5
            torch.testing.assert_close(one.cpu(), other, rtol=10 * tolerance, atol=tolerance * max(scale, 1.0))


def _cpu(array):
    return None if array is None else to_tensor(array)


def _gradients(operator, tensors, attributes):
    leaves = [t.requires_grad_() for t in tensors if t is not None and t.is_floating_point()]
    result = operator(*tensors, **attributes)
    result = result if isinstance(result, tuple) else (result,)
    total = sum((t * torch.arange(t.numel(), device=t.device).view(t.shape).cos()).sum() for t in result)
    return [g for g in torch.autograd.grad(total, leaves, allow_unused=True) if g is not None]


def test_a_module_trains():
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)).cuda()
    x, optimizer = torch.randn(64, 8, device="cuda"), torch.optim.Adam(layer.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        loss = (layer[1](custom_gelu(layer[0](x))) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


# ---- streams, graphs, memory


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_a_side_stream_keeps_the_order(backward):
    """The input comes late on the same stream: a kernel elsewhere would read what was there before."""
    late, stale = (send(a) for a in draw(gate, [(64, 128), (64, 128)]))
    w, b = send(draw(gate, [(128,)])[0]), send(draw(gate, [(64, 1)])[0])
    _compute(stale.clone(), w, b, backward)
    x = stale.clone()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(LONG)
        x.copy_(late)
        found = [t.clone() for t in _compute(x, w, b, backward)]
        torch.cuda.current_stream().synchronize()
    for one, other in zip(found, _compute(late, w, b, backward), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def _compute(x, w, b, backward):
    if not backward:
        return [gate(x, w, b)]
    leaves = [t.detach().requires_grad_() for t in (x, w, b)]
    return torch.autograd.grad(gate(*leaves), leaves, torch.ones_like(x))


def test_a_call_waits_for_nothing():
    x = send(draw(gate, [(64, 128)])[0])
    w = x[0].clone()
    gradient = torch.ops.test_device.gate_grad
    gate(x, w, w), gradient(x, x, w, w)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(LONG)
    start.record()
    gate(x, w, w), gradient(x, x, w, w)  # sums among them
    end.record()
    assert not start.query()  # all of it has been launched, and the device has not come to it
    torch.cuda.synchronize()
    assert end.query()


def test_calls_are_captured_into_graphs():
    first, second = (draw(gate, [(64, 128), (128,), (64, 1), (64, 128)], seed=k) for k in (1, 2))
    given = [send(a) for a in first]
    gradient = torch.ops.test_device.gate_grad

    def run():
        return gate(*given[:3], slope=0.25), *gradient(given[3], *given[:3], slope=0.25)

    with torch.cuda.stream(torch.cuda.Stream()):
        run()  # loads the code
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    for tensor, new in zip(given, second, strict=True):
        tensor.copy_(to_tensor(new))
    for tensor in outputs:
        tensor.fill_(float("nan"))
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    for one, other in zip(outputs, run(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_number_on_the_cpu_is_captured_as_its_value():
    x = send(draw(swish, [(100,)])[0])
    number, zero = torch.tensor(0.75), torch.zeros((), device="cuda")
    gate(x, number, zero)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = gate(x, number, zero)
    number.fill_(-3.0)
    del number
    graph.replay()
    torch.testing.assert_close(y, gate(x, torch.tensor(0.75, device="cuda"), zero), rtol=0, atol=0)


def test_whole_training_steps_are_captured():
    x = torch.randn(32, 8, device="cuda")
    weight = torch.randn(8, device="cuda", requires_grad=True)

    def step():
        weight.grad = None
        (swish(x * weight)).sum().backward()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    weight.grad = None
    with torch.cuda.graph(graph):
        step()
    x.copy_(torch.randn(32, 8, device="cuda"))
    graph.replay()
    found = weight.grad.clone()
    step()
    torch.testing.assert_close(found, weight.grad, rtol=0, atol=0)


def test_memory_goes_back_to_pytorch():
    x = send(draw(gate, [(40000, 3)])[0])
    w = x[0].clone()
    gradient = torch.ops.test_device.gate_grad
    gradient(x, x, w, w)
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    results = [gradient(x, x, w, w) for _ in range(3)]
    kept = sum(-(-t.numel() * t.element_size() // 512) * 512 for found in results for t in found)
    assert torch.cuda.memory_allocated() == held + kept  # the outputs, and no scratch memory
    del results
    assert torch.cuda.memory_allocated() == held


def test_threads_have_streams_of_their_own():
    given = [send(a) for a in draw(custom_gelu, [(50000,)] * 4)]
    found = [None] * 4

    def work(k):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                found[k] = custom_gelu(given[k])
            torch.cuda.current_stream().synchronize()

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, x in zip(found, given, strict=True):
        torch.testing.assert_close(one, custom_gelu(x), rtol=0, atol=0)


# ---- devices


def test_different_devices_are_refused():
    x, w, b = (torch.from_numpy(a) for a in draw(gate, [(4,), (4,), (4,)]))
    with pytest.raises(ArgumentError) as caught:
        gate(x.cuda(), w, b.cuda())
    assert "test.device::Gate, argument w: inputs are on different devices" in str(caught.value)
    assert (caught.value.expected, caught.value.got) == ("all on cuda:0", "cpu")


def test_numbers_on_the_cpu_go_along_with_formulas():
    x = send(draw(gate, [(5, 6)])[0])
    number = torch.tensor(0.25, requires_grad=True)
    y = gate(x, number, 0.5)
    torch.testing.assert_close(y, gate(x, number.detach().cuda(), torch.tensor(0.5, device="cuda")))
    y.sum().backward()
    assert number.grad.device.type == "cpu"
    leaf = torch.tensor(0.25, device="cuda", requires_grad=True)
    gate(x, leaf, 0.5).sum().backward()
    torch.testing.assert_close(number.grad, leaf.grad.cpu())


@TWO
def test_a_second_device():
    (x,) = draw(swish, [(1000,)])
    with torch.cuda.device(0):
        leaf = send(x, "cuda:1").requires_grad_()
        y = swish(leaf)
        y.sum().backward()
        assert torch.cuda.current_device() == 0
    assert y.device == leaf.grad.device == torch.device("cuda:1")
    close(swish, fetch(y), right(swish, [x]))
    with pytest.raises(ArgumentError, match="inputs are on different devices"):
        gate(leaf, send(x, "cuda:0"), 0.0)


# ---- autocast, tracing, errors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    """Each operator's rule on CUDA is that on the CPU."""
    for operator in formulas():
        shapes = [(6, 5)] * len(operator.signature.inputs)
        given = [torch.from_numpy(a) for a in draw(operator, shapes)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rule = operator(*given).dtype
        with torch.autocast("cuda", dtype=dtype):
            result = operator(*[t.cuda() for t in given])
        assert result.dtype == (dtype if rule == torch.bfloat16 else rule)


def test_compiled_with_fake_tensors():
    x = send(draw(custom_gelu, [(33, 7)])[0])

    def layer(t):
        return custom_gelu(t * 2) + 1

    def gradient(function):
        leaf = x.clone().requires_grad_()
        function(leaf).sum().backward()
        return leaf.grad

    backends = ["aot_eager"]
    try:
        import triton  # noqa: F401

        backends.append("inductor")
    except ImportError:
        pass
    for backend in backends:
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient(compiled), gradient(layer), rtol=1e-4, atol=1e-4)


def test_what_pytorch_checks_of_operators():
    x = send(draw(custom_gelu, [(4, 5)])[0]).requires_grad_()
    torch.library.opcheck(opforge.torch.register(custom_gelu), (x,))


def test_wrong_dtypes_are_refused_in_the_words_of_the_cpu():
    with pytest.raises(DtypeError, match="CustomGELU, argument x: wrong dtype"):
        custom_gelu(torch.ones(3, dtype=torch.int32, device="cuda"))


def test_a_missing_library_is_an_error(monkeypatch):
    import opforge as of

    @of.formula("test.device::NeverBuilt")
    def never_built(x):
        return of.exp(x) * 0.5

    x = torch.ones(3)
    never_built(x)  # for the CPU
    monkeypatch.setenv("OPFORGE_JIT", "off")
    with pytest.raises(UnsupportedError, match="the operator's kernels for cuda are not built"):
        never_built(x.cuda())


@pytest.mark.skipif("OPFORGE_DEVICE_OTHER_ROUTE" in os.environ, reason="this is the other route")
def test_all_of_it_on_the_other_route():
    other = "stable" if opforge.torch.route() == "accelerator" else "accelerator"
    if other == "accelerator":
        from opforge.frameworks.torch import _accelerator

        if _accelerator.built() is None:
            pytest.skip("the accelerator is not built here: opforge build --host torch")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "OPFORGE_TORCH_ROUTE": other, "OPFORGE_DEVICE_OTHER_ROUTE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{other}:\n{done.stdout[-6000:]}\n{done.stderr[-1000:]}"
