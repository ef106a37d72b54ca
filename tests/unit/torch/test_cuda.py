"""Tensors on CUDA: dispatch, stream, guard, devices, memory and errors, with emulated kernels over host memory."""

import contextlib
import ctypes
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import opforge as of
import opforge.torch
from opforge.build import library_for, load_library, manifest
from opforge.build.plan import plan_library
from opforge.cuda import emulate_operators
from opforge.errors import ArgumentError, DtypeError, UnsupportedError
from opforge.frameworks.torch._calls import _convert
from opforge.schema import registry
from tests import launched as launched_by_driver
from tests.device_notes import replace_builder
from tests.unit.torch.host_cuda import HostCuda, host_cuda, on_cuda, view

pytestmark = pytest.mark.compiler

RNG = np.random.default_rng(5)


@of.formula("test.torchcuda::Gate", autocast="lower")
def gate(x, w, *, slope: float = 0.5):
    """Broadcast, with an attribute."""
    return of.where(x > w, of.tanh(x * w), slope * x)


@of.formula("test.torchcuda::Between")
def between(x, low, high):
    """Three tensors."""
    return of.minimum(of.maximum(x, low), high)


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> HostCuda:
    with host_cuda(tmp_path_factory.mktemp("cuda")) as found:
        opforge.torch.register(gate)
        opforge.torch.register(between)
        yield found


@pytest.fixture(scope="module")
def kernels(cuda: HostCuda) -> ctypes.CDLL:
    """Give the operators their emulated kernels, in a library that comes after the one for the CPU."""
    emulated = emulate_operators(plan_library([gate, between]).operators)
    opforge.torch.register_library(load_library(emulated.path))
    return emulated.load()


@pytest.fixture(autouse=True)
def _afresh(cuda: HostCuda) -> None:
    cuda.allocated.clear()
    cuda.current.clear()


def raised() -> type[Exception]:
    """What a call of ``torch.ops`` raises: the stable ABI knows one class only."""
    return RuntimeError if opforge.torch.route() == "stable" else ValueError


def launched(library: ctypes.CDLL) -> tuple[int, int, int]:
    """How many launches there were; device and stream of the last."""
    device, stream = ctypes.c_int(-1), ctypes.c_void_p()
    library.opforge_cuda_launched.restype = ctypes.c_int64
    return library.opforge_cuda_launched(ctypes.byref(device), ctypes.byref(stream)), device.value, stream.value or 0


def arrays(*shapes: tuple[int, ...], dtype: type = np.float32) -> list[np.ndarray]:
    return [np.asarray(RNG.normal(size=shape), dtype) for shape in shapes]


def on_cpu(*values: np.ndarray, **attributes: float) -> np.ndarray:
    return gate(*[torch.from_numpy(np.ascontiguousarray(v)) for v in values], **attributes).numpy()


def test_without_a_library_the_error_names_what_is_missing(cuda, monkeypatch):
    x = on_cuda(np.ones(3, np.float32))
    monkeypatch.setenv("OPFORGE_JIT", "off")
    monkeypatch.setenv("OPFORGE_LIBRARY_PATH", "")
    with pytest.raises(UnsupportedError) as caught:
        gate(x, x)
    error = caught.value
    assert "the operator's kernels for cuda are not built" in str(error)
    assert "OPFORGE_JIT=off forbids compiling" in str(error)
    assert "opforge build PACKAGE --device cuda --out FOLDER" in error.hint
    with pytest.raises(raised(), match="the operator's kernels for cuda are not built"):
        torch.ops.test_torchcuda.gate(x, x)
    assert cuda.allocated == []  # nothing went to the CPU or anywhere


@pytest.mark.parametrize("key", ["CPU", "CUDA", "AutogradCUDA", "AutocastCPU", "AutocastCUDA"])
def test_registered_under_the_keys(kernels, key):
    for name in ("test_torchcuda::gate", "test_torchcuda::gate_grad"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, key) or (
            key == "AutogradCUDA" and torch._C._dispatch_has_kernel_for_dispatch_key(name, "Autograd")
        )


@pytest.mark.parametrize("device", [0, 1])
def test_runs_on_the_device_and_its_current_stream(cuda, kernels, device):
    x, w = arrays((4, 5), (5,))
    count = launched(kernels)[0]
    y = gate(on_cuda(x, device), on_cuda(w, device), slope=0.25)
    assert y.device == torch.device("cuda", device)
    np.testing.assert_allclose(view(y), on_cpu(x, w, slope=0.25), rtol=1e-6)
    assert launched(kernels) == (count + 1, device, 0x1000 + device)
    assert cuda.allocated == [((4, 5), torch.float32, device)]
    assert cuda.current == [device]  # made while the device was the current one
    assert cuda.number("guards").value == 0
    assert cuda.number("current").value == 0


def test_the_kernel_for_the_cpu_still_serves_the_cpu(cuda, kernels):
    count = launched(kernels)[0]
    x, w = arrays((3,), (3,))
    on_cpu(x, w)
    assert launched(kernels)[0] == count


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_strides_offsets_and_sizes(cuda, kernels, dtype):
    base = np.asarray(RNG.normal(size=(6, 8, 4)), dtype)
    for x in (base[::2, 1:, :], base.transpose(2, 0, 1), base[0, 0, 1:2], base[:, :0], np.asarray(base[0, 0, 0])):
        w = np.asarray(0.3, dtype)
        y = gate(on_cuda(x), on_cuda(w))
        assert y.is_contiguous()
        np.testing.assert_allclose(view(y), on_cpu(x, w), rtol=2e-3 if dtype == np.float16 else 1e-6)


def test_nothing_is_launched_for_no_elements(cuda, kernels):
    count = launched(kernels)[0]
    y = gate(on_cuda(np.empty((0, 3), np.float32)), on_cuda(np.empty((3,), np.float32)))
    assert y.shape == (0, 3)
    assert y.is_cuda
    assert launched(kernels)[0] == count


def test_different_devices_are_refused(cuda, kernels):
    x, w = arrays((4,), (4,))
    with pytest.raises(ArgumentError) as caught:
        gate(on_cuda(x, 0), torch.from_numpy(w))
    assert caught.value.where is None or "w" in str(caught.value)
    assert "test.torchcuda::Gate, argument w: inputs are on different devices" in str(caught.value)
    assert (caught.value.expected, caught.value.got) == ("all on cuda:0", "cpu")
    with pytest.raises(ArgumentError, match="argument x: inputs are on different devices"):
        gate(torch.from_numpy(x), on_cuda(w, 1))
    with pytest.raises(ArgumentError) as caught:
        gate(on_cuda(x, 0), on_cuda(w, 1))
    assert (caught.value.expected, caught.value.got) == ("all on cuda:0", "cuda:1")
    assert cuda.allocated == []


def test_a_number_on_the_cpu_goes_along_with_a_formula(cuda, kernels):
    x, w = arrays((4,), ())
    expected = on_cpu(x, w)
    y = gate(on_cuda(x, 1), torch.from_numpy(w))
    np.testing.assert_allclose(view(y), expected, rtol=1e-6)
    assert y.device.index == 1
    assert [entry[2] for entry in cuda.allocated] == [1, 1]  # the number's place, then the output
    y = gate(torch.from_numpy(w), on_cuda(x))
    np.testing.assert_allclose(view(y), on_cpu(w, x), rtol=1e-6)
    y = gate(on_cuda(x), 0.25)  # a Python number lies where the tensors are
    np.testing.assert_allclose(view(y), on_cpu(x, np.float32(0.25)), rtol=1e-6)


def backward(y: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    """Call the backward function as the engine would, which has no thread for such a device."""
    node = y.grad_fn
    found = node(gradient) if callable(node) else node.apply(gradient)
    return [t for t in (found if isinstance(found, tuple) else (found,)) if t is not None]


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((300, 4), (4,)), ((2, 1, 3), (5, 1)), ((0, 3), (3,))])
def test_gradients(cuda, kernels, shapes):
    x, w = arrays(*shapes)
    leaves = [torch.from_numpy(v.copy()).requires_grad_() for v in (x, w)]
    out = gate(*leaves)
    g = np.asarray(RNG.normal(size=out.shape), np.float32)
    expected = torch.autograd.grad(out, leaves, torch.from_numpy(g))
    y = gate(*[on_cuda(v, 1).requires_grad_() for v in (x, w)])
    assert y.requires_grad
    found = backward(y, on_cuda(g, 1))
    assert len(found) == 2
    for one, right in zip(found, expected, strict=True):
        assert one.device == torch.device("cuda", 1)
        np.testing.assert_allclose(view(one), right.numpy(), rtol=1e-4, atol=1e-5)
    if 0 not in x.shape:
        assert launched(kernels)[1:] == (1, 0x1001)
    assert cuda.number("guards").value == 0


def test_scratch_is_pytorchs_memory_on_the_device(cuda, kernels):
    x, w = arrays((40000, 2), (2,))  # sums in several parts
    y = gate(on_cuda(x, 1), on_cuda(w, 1).requires_grad_())
    cuda.allocated.clear()
    backward(y, on_cuda(np.ones(y.shape, np.float32), 1))
    scratch = [entry for entry in cuda.allocated if entry[1] == torch.uint8]
    assert scratch
    assert all(device == 1 for _, _, device in scratch)


def test_second_derivatives_take_the_dispatcher(cuda, kernels):
    x, w = arrays((5,), (5,))
    y = gate(on_cuda(x).requires_grad_(), on_cuda(w))
    g = on_cuda(np.ones(5, np.float32)).requires_grad_()
    (first,) = backward(y, g)
    assert first.requires_grad
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    (right,) = torch.autograd.grad(gate(leaf, torch.from_numpy(w)), leaf, torch.ones(5), create_graph=True)
    np.testing.assert_allclose(view(first.detach()), right.detach().numpy(), rtol=1e-5)


@contextlib.contextmanager
def autocast(**dtypes: torch.dtype) -> Iterator[None]:
    """Switch autocast on for devices; torch.autocast asks a real CUDA."""
    before = {device: torch.get_autocast_dtype(device) for device in dtypes}
    for device, dtype in dtypes.items():
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        for device, dtype in before.items():
            torch.set_autocast_enabled(device, False)
            torch.set_autocast_dtype(device, dtype)


@pytest.mark.parametrize("cast", [torch.float16, torch.bfloat16])
def test_autocast(cuda, kernels, cast):
    x, w = arrays((6,), (6,))
    with autocast(cuda=cast):
        y = gate(on_cuda(x), on_cuda(w))
        assert gate(torch.from_numpy(x), torch.from_numpy(w)).dtype == torch.float32  # that of the CPU is off
    assert y.dtype == cast
    np.testing.assert_allclose(view(y).astype(np.float32), on_cpu(x, w), atol=3e-2)


HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("on", "all_cuda", "mixed", "all_cpu"),
    [
        ({"cpu": BRAIN}, SINGLE, SINGLE, BRAIN),
        ({"cuda": HALF}, HALF, HALF, SINGLE),
        ({"cpu": BRAIN, "cuda": HALF}, HALF, HALF, BRAIN),
    ],
)
def test_the_autocast_of_the_device_that_the_call_runs_on_counts(cuda, kernels, on, all_cuda, mixed, all_cpu):
    """A number on the CPU beside CUDA tensors follows their autocast, in either place."""
    x = arrays((6,))[0]
    there, number, here = on_cuda(x), torch.tensor(0.3), torch.from_numpy(x)
    with autocast(**on):
        found = [gate(there, there), gate(there, number), gate(number, there), gate(here, number)]
        whole = gate(on_cuda(x.astype(np.float64)), torch.tensor(0.3, dtype=torch.float64))
    assert [y.dtype for y in found] == [all_cuda, mixed, mixed, all_cpu]
    assert [y.device.type for y in found] == ["cuda", "cuda", "cuda", "cpu"]
    assert whole.dtype == torch.float64  # left alone, as in PyTorch's own rules
    np.testing.assert_allclose(view(found[1]).astype(np.float32), on_cpu(x, np.float32(0.3)), atol=3e-2)


@pytest.mark.parametrize("device", [0, 1])
def test_a_python_number_goes_where_the_call_runs(cuda, kernels, device):
    """A tensor of no dimensions on the CPU may stand first; it says nothing of where the call runs."""
    x = np.float32([-1, 0.5, 2])
    given = (torch.tensor(0.25), 0, on_cuda(x, device))
    assert _convert(between, given)[1].device == torch.device("cuda", device)
    cuda.allocated.clear()
    y = between(*given)
    assert y.device == torch.device("cuda", device)
    np.testing.assert_array_equal(view(y), np.float32([-1, 0.25, 0.25]))
    numbers = [there for shape, _, there in cuda.allocated if shape == ()]
    assert numbers == [device, device]  # the Python number, and the value of the tensor


def test_a_library_for_cuda_that_comes_first_hides_none_for_the_cpu(cuda, tmp_path, monkeypatch):
    """A declared library is made or found, an undeclared one found; else the error says what is missing."""
    folders = [tmp_path / "cuda", tmp_path / "cpu"]
    operators = []
    for name in ("Declared", "Found", "Nowhere"):

        @of.formula(f"test.torchfirst::{name}")
        def operator(x, *, by: float = 2.0):
            return of.tanh(x) * by

        operators.append(operator)
    for folder, library in (
        (folders[0], emulate_operators(plan_library(operators).operators)),
        (folders[1], library_for(operators[:2])),
    ):
        folder.mkdir()
        path = Path(shutil.copy(library.path, folder / "first.so"))
        path.with_suffix(".manifest.json").write_text(json.dumps(manifest(load_library(path))))
    opforge.torch.register_library(load_library(folders[0] / "first.so"))
    registry.unregister(operators[1])
    registry.unregister(operators[2])
    space = torch.ops.test_torchfirst
    x = arrays((5,))[0]
    for function in (space.declared, space.found, space.nowhere):
        y = function(on_cuda(x))
        np.testing.assert_allclose(view(y), 2 * np.tanh(x), rtol=1e-6)
    here = torch.from_numpy(x)
    with pytest.raises(raised(), match=r"the operator's kernels for the CPU are not built(?s:.*)another device"):
        space.found(here)
    monkeypatch.setenv("OPFORGE_LIBRARY_PATH", os.pathsep.join(map(str, folders)))
    for function in (space.declared, space.found):
        np.testing.assert_allclose(function(here).numpy(), 2 * np.tanh(x), rtol=1e-6)
    np.testing.assert_allclose(operators[0](here).numpy(), 2 * np.tanh(x), rtol=1e-6)
    with pytest.raises(raised(), match="the operator's kernels for the CPU are not built"):
        space.nowhere(here)


@pytest.mark.parametrize("place", [0, 1])
def test_a_number_on_the_cpu_changes_its_device_and_never_its_dtype(cuda, kernels, place):
    """PyTorch's own operators would compute in the tensor's dtype; ours refuse another one, on every device."""
    x = arrays((4,))[0]
    for tensor in (on_cuda(x), torch.from_numpy(x)):
        given = [tensor, torch.tensor(0.3, dtype=torch.float64)]
        first, second = ("f64", "f32") if place else ("f32", "f64")
        words = rf"argument w: wrong dtype\n  expected: {first}, as T in argument x\n  got: {second}"
        with pytest.raises(DtypeError, match=words):
            gate(*given[:: -1 if place else 1])
    before = launched(kernels)[0]
    with pytest.raises(ArgumentError, match=r"(?s)different devices.*all on cuda:0.*got: cpu.*to do: move them"):
        gate(on_cuda(x), torch.ones(1))  # one element, but a dimension
    assert launched(kernels)[0] == before


@pytest.mark.parametrize("shape", [(), (4,)])
def test_kernel_operators_take_no_number_on_the_cpu(cuda, hand, shape):
    """Only formulas do: a kernel may read an input as it likes."""
    rows = on_cuda(np.ones((3, 4), np.float32))
    with pytest.raises(raised(), match=r"(?s)different devices.*all on cuda:0.*got: cpu.*to do: move them"):
        hand.mul_rows(rows, torch.ones(shape))


def test_what_the_launch_says_is_raised(cuda, kernels):
    x = on_cuda(np.ones(3, np.float32), 7)  # the emulator has two devices
    with pytest.raises(ArgumentError, match=r"no such GPU: cudaErrorInvalidDevice \(101\)"):
        gate(x, x)
    with pytest.raises(raised(), match="no such GPU"):
        torch.ops.test_torchcuda.gate(x, x)
    assert cuda.number("guards").value == 0


@pytest.mark.parametrize(("which", "words"), [("refuse_guard", "the device"), ("refuse_stream", "its current stream")])
def test_what_pytorch_refuses_is_raised(cuda, kernels, which, words):
    x = on_cuda(np.ones(3, np.float32))
    cuda.number(which).value = 1
    try:
        with pytest.raises(UnsupportedError, match=f"PyTorch gives no access to {words}"):
            gate(x, x)
    finally:
        cuda.number(which).value = 0
    assert cuda.number("guards").value == 0


def test_the_gradient_of_a_number_on_the_cpu(cuda, kernels):
    """It has no dimensions, and lies where the others are: the engine brings such ones to their inputs."""
    x = arrays((6,))[0]
    number = torch.tensor(0.5, requires_grad=True)
    right = torch.autograd.grad(gate(torch.from_numpy(x), number).sum(), number)[0]
    (found,) = backward(gate(on_cuda(x), number), on_cuda(np.ones(6, np.float32)))
    assert (found.shape, found.device.type) == ((), "cuda")
    np.testing.assert_allclose(view(found), right.numpy(), rtol=1e-5)


def fake(mode: FakeTensorMode, *shapes: tuple[int, ...], device: str = "cuda:1") -> list[torch.Tensor]:
    with mode:
        return [torch.empty(shape, device=device) for shape in shapes]


def test_fake_tensors_keep_their_device(cuda, kernels):
    mode = FakeTensorMode()
    x, w = fake(mode, (4, 5), (5,))
    with mode:
        y = torch.ops.test_torchcuda.gate(x, w)
        assert (y.device, y.shape) == (torch.device("cuda", 1), (4, 5))
        dx, dw = torch.ops.test_torchcuda.gate_grad(y, x, w)
        assert (dx.device, dw.device) == (x.device, w.device)
        assert (dx.shape, dw.shape) == (x.shape, w.shape)
        number = torch.empty((), device="cpu")
        assert torch.ops.test_torchcuda.gate(x, number).device == x.device
        assert torch.ops.test_torchcuda.gate(number, x).device == x.device
        for other in (torch.empty(5, device="cpu"), torch.empty(5, device="cuda:0")):
            with pytest.raises(Exception, match=r"inputs are on different devices|found at least two devices"):
                torch.ops.test_torchcuda.gate(x, other)
    assert cuda.allocated == []


def test_fake_backward(cuda, kernels):
    mode = FakeTensorMode()
    leaves = [t.requires_grad_() for t in fake(mode, (4, 5), (5,))]
    with mode:
        y = gate(*leaves)
        found = backward(y, torch.ones_like(y))
    assert [(t.device, t.shape) for t in found] == [(t.device, t.shape) for t in leaves]


class Layer(torch.nn.Module):
    """Two calls."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Run."""
        return gate(gate(x, w), w, slope=0.25) * 2


def test_a_graph_that_was_exported_for_cuda_runs_on_the_cpu(cuda, kernels):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    program = torch.export.export(Layer(), tuple(fake(mode, (4, 5), (5,))), strict=False)
    calls = [node for node in program.graph.nodes if "gate" in str(node.target)]
    assert len(calls) == 2
    assert all(node.meta["val"].device == torch.device("cuda", 1) for node in calls)
    x, w = (torch.from_numpy(v) for v in arrays((4, 5), (5,)))
    torch.testing.assert_close(program.module()(x, w), Layer()(x, w))


def test_forward_and_backward_are_traced(cuda, kernels):
    """What torch.compile hands to a backend: a graph with the gradient operator in it, for the device."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def both(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        y = gate(x.requires_grad_(), w.requires_grad_())
        return [y, *backward(y, torch.ones_like(y))]

    with mode:
        graph = make_fx(both)(*fake(mode, (4, 5), (5,)))
    ours = [node for node in graph.graph.nodes if "test_torchcuda" in str(node.target)]
    assert [str(node.target) for node in ours] == ["test_torchcuda.gate.default", "test_torchcuda.gate_grad.default"]
    made = [t for node in ours for t in torch.utils._pytree.tree_leaves(node.meta["val"])]
    assert {t.device for t in made} == {torch.device("cuda", 1)}


def test_kernels_that_nvrtc_compiled(cuda, monkeypatch):
    """Nothing but PyTorch, a driver and NVRTC: built when the first tensor comes, launched through the driver."""
    driver = launched_by_driver.use_fake_driver(monkeypatch)
    monkeypatch.setenv("OPFORGE_FAKE_DEVICES", "2")
    replace_builder(monkeypatch, lambda plan: launched_by_driver.build(monkeypatch))
    x, w = arrays((300, 4), (4,))
    leaves = [torch.from_numpy(v.copy()).requires_grad_() for v in (x, w)]
    out = launched_by_driver.gate(*leaves, slope=0.25)
    expected = torch.autograd.grad(out, leaves, torch.ones_like(out))
    before = launched_by_driver.seen(driver).launches
    y = launched_by_driver.gate(*[on_cuda(v, 1).requires_grad_() for v in (x, w)], slope=0.25)
    np.testing.assert_allclose(view(y.detach()), out.detach().numpy(), rtol=1e-6)
    for one, right in zip(backward(y, on_cuda(np.ones((300, 4), np.float32), 1)), expected, strict=True):
        np.testing.assert_allclose(view(one), right.numpy(), rtol=1e-4, atol=1e-5)
    seen = launched_by_driver.seen(driver)
    assert (seen.launches - before, seen.device, seen.stream) == (3, 1, 0x1001)  # w's sum is not cut: one for it
    monkeypatch.setenv("OPFORGE_FAKE_FAIL", "cuLaunchKernel=719")
    with pytest.raises(Exception, match=r"CUDA_ERROR_LAUNCH_FAILED \(719\)"):
        launched_by_driver.gate(on_cuda(x), on_cuda(w))
