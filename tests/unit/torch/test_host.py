"""The host around the operators: names, registration, calls by operator objects, autocast, layers, threads."""

import copy
import io
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest
import torch

import opforge as of
import opforge.torch
from opforge.build.cache import cache_dir
from opforge.errors import ArgumentError, BuildError, CandidateError, DtypeError, UnsupportedError
from opforge.frameworks.torch import _accelerator, _adapter, all_entries
from opforge.frameworks.torch._entries import ENTRIES, torch_name
from opforge.ops import clip_sigmoid, custom_gelu, mod_sigmoid, sparse_matmul
from tests.unit.expr.conversions import OPERATORS, VALUES, compare


@pytest.fixture
def interpreted(monkeypatch):
    """Operators that are first used in such a test run by the interpreter: nothing is compiled for them."""
    monkeypatch.setenv("OPFORGE_JIT", "off")


def test_route_is_the_one_that_was_asked_for():
    assert opforge.torch.route() == os.environ["OPFORGE_TORCH_ROUTE"]


def test_names_in_torch_ops_without_a_call_before_and_an_import_that_builds_nothing(tmp_path):
    """torch.ops finds a declared operator by name and registers it then; the import itself compiles nothing."""
    code = (
        "import pathlib, torch, opforge.torch, opforge.ops, os\n"
        "print(any(pathlib.Path(os.environ['OPFORGE_CACHE']).rglob('*')))\n"
        "os.environ['OPFORGE_JIT'] = 'off'; os.environ['OPFORGE_CACHE'] = os.environ['REAL_CACHE']\n"
        "print(torch.ops.com_example.custom_gelu.default._schema)\n"
        "print(torch.ops.com_example.custom_gelu_grad.default._schema)\n"
        "print(hasattr(torch.ops.com_example, 'no_such_thing'))\n"
    )
    environment = {**os.environ, "OPFORGE_CACHE": str(tmp_path), "REAL_CACHE": str(cache_dir())}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "False",
        "com_example::custom_gelu(Tensor x) -> Tensor",
        "com_example::custom_gelu_grad(Tensor grad_y, Tensor x) -> Tensor",
        "False",
    ], done.stderr


def test_registering_again_changes_nothing(hand, handwritten_path):
    from opforge.build import load_library

    first = opforge.torch.register(custom_gelu)
    assert opforge.torch.register(custom_gelu) is first
    before = [entry.overload for entry in all_entries()]
    opforge.torch.register_library(load_library(handwritten_path))
    assert [entry.overload for entry in all_entries()] == before


def test_a_changed_operator_of_the_same_name_is_refused(hand, handwritten_path):
    from dataclasses import replace

    from opforge.build import load_library

    known = load_library(handwritten_path).operators["test.hand::Gelu:1"]
    with pytest.raises(ArgumentError, match="another operator of this name is registered with PyTorch"):
        ENTRIES.register([replace(known, schema_hash="another")])


def test_a_changed_declaration_does_not_run_the_old_kernel(interpreted):
    from opforge.schema import registry

    first = of.formula("test.torch::Changing")(lambda x: x + 1.0)
    torch.testing.assert_close(first(torch.ones(2)), torch.full((2,), 2.0))
    registry.unregister(first)
    second = of.formula("test.torch::Changing")(lambda x: x + 2.0)
    words = r"(?s)test.torch::Changing:1: another operator of this name is registered with PyTorch.*raise since="
    for use in (second, lambda x: opforge.torch.register(second)):
        with pytest.raises(ArgumentError, match=words):
            use(torch.ones(2))
    registry.unregister(second)
    torch.testing.assert_close(first(torch.ones(2)), torch.full((2,), 2.0))


def test_older_versions_have_their_number_in_the_name(interpreted):
    @of.formula("test.versions::Twice", since=1)
    def old(x):
        return x + x

    @of.formula("test.versions::Twice", since=3)
    def new(x):
        return 2 * x

    assert torch_name("test.versions", "Twice", 1) == ("test_versions", "twice_v1")
    assert torch_name("test.versions", "Twice", 3) == ("test_versions", "twice")
    assert torch_name("test.versions", "TwiceGrad", 1) == ("test_versions", "twice_grad_v1")
    x = torch.randn(3)
    torch.testing.assert_close(torch.ops.test_versions.twice(x), 2 * x)
    torch.testing.assert_close(torch.ops.test_versions.twice_v1(x), 2 * x)
    assert ENTRIES.find(new.key).name == "twice"
    assert ENTRIES.find(old.key).name == "twice_v1"


@pytest.mark.filterwarnings("ignore")  # of PyTorch: prototypes and deprecations
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(2).to_sparse(), "tensor of another layout (torch.sparse_coo)|to_dense"),
        (lambda: torch.eye(2).to_sparse_csr(), "tensor of another layout (torch.sparse_csr)|to_dense"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "a nested tensor|to_padded_tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "a quantised tensor|t.dequantize()"),
    ],
)
def test_tensors_that_are_not_dense_are_refused_in_words(make, words):
    """PyTorch's own words are its list of all dispatch keys."""
    for arguments, name in (((make(), torch.ones(1)), "x"), ((torch.ones(1), make()), "threshold")):
        with pytest.raises(UnsupportedError) as raised:
            mod_sigmoid(*arguments)
        for word in (f"argument {name}: only dense tensors are computed with", *words.split("|")):
            assert word in str(raised.value)


def test_lists_of_tensors_are_refused():
    """As one array they would be computed by NumPy, without a gradient."""
    tensors = [torch.ones(2, requires_grad=True), torch.ones(2)]
    words = r"(?s)CustomGELU, argument x: a list of tensors.*expected: one tensor.*list with torch.Tensor.*stack them"
    with pytest.raises(ArgumentError, match=words):
        custom_gelu(tensors)
    with pytest.raises(ArgumentError, match=r"(?s)ModSigmoid, argument x: a tuple of tensors"):
        mod_sigmoid(tuple(tensors), torch.ones(2))
    assert mod_sigmoid([1.0, 2.0], torch.ones(2)).shape == (2,)


def test_operator_objects_on_tensors():
    x = torch.randn(4, 3)
    torch.testing.assert_close(custom_gelu(x), torch.nn.functional.gelu(x, approximate="tanh"))
    parameter = torch.nn.Parameter(x)
    assert custom_gelu(parameter).requires_grad
    torch.testing.assert_close(mod_sigmoid(x=x, threshold=torch.ones(3)), torch.sigmoid(x - 1))
    torch.testing.assert_close(clip_sigmoid(x, lo=0.4, hi=0.6), torch.sigmoid(x).clip(0.4, 0.6))


def test_numbers_and_arrays_go_along_with_tensors():
    import numpy

    x = torch.randn(4, 3, dtype=torch.float64)
    expected = torch.sigmoid(x - 0.5)
    torch.testing.assert_close(mod_sigmoid(x, 0.5), expected)
    torch.testing.assert_close(mod_sigmoid(x, numpy.full(3, 0.5)), expected)
    torch.testing.assert_close(mod_sigmoid(0.5, x), torch.sigmoid(0.5 - x))
    compiled = torch.compile(lambda t: mod_sigmoid(t, 0.5), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), expected)


def test_calls_raise_the_classes_of_opforge():
    x = torch.randn(2, 3)
    with pytest.raises(DtypeError, match=r"(?s)CustomGELU, argument x: wrong dtype.*f16, bf16, f32, f64.*i64"):
        custom_gelu(torch.ones(2, dtype=torch.int64))
    with pytest.raises(DtypeError, match=r"(?s)ModSigmoid, argument threshold: wrong dtype.*f32.*f64"):
        mod_sigmoid(x, torch.ones(3, dtype=torch.float64))
    with pytest.raises(ArgumentError, match=r"(?s)shapes do not broadcast"):
        mod_sigmoid(x, torch.ones(4))
    with pytest.raises(ArgumentError, match=r"(?s)wrong number of inputs.*2 \(x, threshold\)"):
        mod_sigmoid(x)
    with pytest.raises(DtypeError, match="attribute lo: wrong attribute type"):
        clip_sigmoid(x, lo=True)
    with pytest.raises(ArgumentError, match="unknown attribute"):
        clip_sigmoid(x, low=0.2)
    indices, indptr = torch.tensor([0, 9]), torch.tensor([0, 1, 2])
    with pytest.raises(ArgumentError, match=r"indices\[1\] \(row 1\) is 9"):
        sparse_matmul(torch.ones(2), indices, indptr, torch.ones(3, 2))
    with pytest.raises(UnsupportedError, match="jvp"):
        torch.func.jvp(custom_gelu, (x,), (x,))


def test_an_earlier_failure_is_not_mistaken_for_a_later_one():
    with pytest.raises((RuntimeError, TypeError)):
        torch.ops.com_example.custom_gelu(torch.ones(2, dtype=torch.int64))
    with pytest.raises(UnsupportedError, match="a quantised tensor"):
        custom_gelu(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_promotes_and_gradients_keep_their_dtype(dtype):
    x = torch.randn(4, 4, requires_grad=True)
    threshold = torch.tensor(0.5, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        product = x @ x
        assert product.dtype == dtype
        same = mod_sigmoid(product, threshold)
        wide = torch.ops.com_example.mod_sigmoid(x, threshold)
    assert (same.dtype, wide.dtype) == (dtype, torch.float32)
    (same.float().sum() + wide.sum()).backward()
    assert (x.grad.dtype, threshold.grad.dtype) == (torch.float32, dtype)
    with pytest.raises(DtypeError):
        mod_sigmoid(x, threshold)


def test_autocast_rules_f32_and_none(hand):
    a = torch.randn(3, 4, dtype=torch.bfloat16, requires_grad=True)
    b = torch.randn(4, dtype=torch.float16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = hand.mul_rows(a, b)
        assert y.dtype == torch.float32
        with pytest.raises((RuntimeError, TypeError), match="wrong dtype"):
            hand.attributes(a.detach())
    y.sum().backward()
    assert a.grad.dtype == torch.bfloat16


def test_autocast_rule_lower(interpreted):
    @of.formula("test.autocast::Lowered", autocast="lower")
    def lowered(x):
        return x * 2

    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert lowered(torch.ones(3)).dtype == torch.bfloat16
        assert lowered(torch.ones(3, dtype=torch.float64)).dtype == torch.float64
    assert lowered(torch.ones(3)).dtype == torch.float32


def test_module_in_a_sequential_model():
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 4),
        opforge.torch.Module(mod_sigmoid, threshold=torch.nn.Parameter(torch.zeros(4))),
        opforge.torch.Module(clip_sigmoid, lo=0.25),
    )
    x = torch.randn(5, 3)
    expected = torch.sigmoid(torch.sigmoid(model[0](x))).clip(0.25, 0.9)
    torch.testing.assert_close(model(x), expected)
    model(x).sum().backward()
    assert model[1].threshold.grad.shape == (4,)
    assert "com.example::ClipSigmoid, lo=0.25" in repr(model)
    twin = copy.deepcopy(model)
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(twin(x), model(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(model))(x), model(x))
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    assert "1.threshold" in model.state_dict()
    with pytest.raises(ArgumentError, match="unknown attribute"):
        opforge.torch.Module(clip_sigmoid, low=0.25)
    with pytest.raises(ArgumentError, match="an input is no tensor"):
        opforge.torch.Module(mod_sigmoid, threshold=0.5)


def test_training_lowers_a_loss():
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    target = torch.sigmoid(x @ torch.randn(8, 1) - 0.7)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16),
        opforge.torch.Module(custom_gelu),
        torch.nn.Linear(16, 1),
        opforge.torch.Module(mod_sigmoid, threshold=torch.nn.Parameter(torch.tensor(0.0))),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_other_threads_run_while_a_kernel_computes(hand):
    ticks, done = [], threading.Event()

    def watch():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    time.sleep(0.02)
    most = 0
    for k in range(10):  # where others keep the cores busy, the watcher may not come to one in time
        milliseconds = 200 << k // 2
        begin = time.perf_counter()
        hand.wait(torch.ones(1), milliseconds=milliseconds)
        end = time.perf_counter()
        assert end - begin >= milliseconds / 1e3
        most = max(most, sum(begin < tick < end for tick in ticks))
        if most >= 10:
            break
    done.set()
    watcher.join()
    assert most >= 10  # with the lock held there would be none


def test_many_threads_get_equal_results(hand):
    x = torch.randn(1000, requires_grad=True)
    (expected,) = torch.autograd.grad(custom_gelu(x).sum(), x)
    failures = []

    def work():
        for _ in range(30):
            (got,) = torch.autograd.grad(custom_gelu(x).sum(), x)
            if not torch.equal(got, expected):
                failures.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class Squares(torch.utils.data.Dataset):
    """Computes in the worker, after a fork of a process that has used its threads."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return custom_gelu(torch.full((50_000,), float(index)))


def test_dataloader_workers(hand):
    custom_gelu(torch.randn(1 << 20))  # the parent's threads are up
    hand.chunks(torch.zeros(100_000), grain=64)
    loader = torch.utils.data.DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    rows = torch.cat(list(loader))
    values = torch.arange(6.0)
    torch.testing.assert_close(rows[:, 0], torch.nn.functional.gelu(values, approximate="tanh"))


def test_inference_mode_and_no_grad():
    x = torch.randn(3, requires_grad=True)
    with torch.inference_mode():
        assert custom_gelu(x).is_inference()
    with torch.no_grad():
        assert not custom_gelu(x).requires_grad


def test_meta_device_and_other_devices():
    assert custom_gelu(torch.empty(3, 4, device="meta")).device.type == "meta"
    assert custom_gelu(torch.empty(3, 4, device="meta").t()).shape == (4, 3)
    with pytest.raises((RuntimeError, ValueError), match=r"device|meta"):
        mod_sigmoid(torch.ones(3), torch.empty(3, device="meta"))


def test_unknown_values_in_the_environment_are_named(monkeypatch):
    monkeypatch.setenv("OPFORGE_TORCH_ROUTE", "fast")
    with pytest.raises(ArgumentError, match=r"(?s)OPFORGE_TORCH_ROUTE.*auto \| stable \| accelerator.*fast"):
        _adapter._choose()
    monkeypatch.setenv("OPFORGE_TORCH_DECOMPOSE", "maybe")
    with pytest.raises(ArgumentError, match=r"(?s)OPFORGE_TORCH_DECOMPOSE.*auto \| on \| off.*maybe"):
        opforge.torch.Options()
    monkeypatch.setenv("OPFORGE_TORCH_BUILD", "later")
    with pytest.raises(ArgumentError, match=r"(?s)OPFORGE_TORCH_BUILD.*background \| off.*later"):
        _accelerator.build_in_background()


def test_missing_adapters_are_listed_with_their_reasons(monkeypatch, tmp_path):
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path))
    monkeypatch.setenv("OPFORGE_TORCH_ROUTE", "accelerator")
    with pytest.raises(
        CandidateError, match=r"(?s)accelerator: not built for this PyTorch yet.*opforge build --host torch"
    ):
        _adapter._choose()
    monkeypatch.setenv("OPFORGE_TORCH_ROUTE", "auto")
    assert _adapter._choose().route == "stable"
    monkeypatch.setattr(_adapter, "library_dir", lambda: tmp_path)
    with pytest.raises(CandidateError, match=r"(?s)accelerator: not built.*stable: .*the adapter is not there"):
        _adapter._choose()


def test_a_failed_build_is_remembered_and_told(monkeypatch, tmp_path):
    """A background build that fails is not tried again by every process; its words are kept."""
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path))
    monkeypatch.setenv("OPFORGE_TORCH_BUILD", "background")
    monkeypatch.setattr(_accelerator, "_flags", lambda: ("-std=c++17", "-include", "no_such_header.h"))
    with pytest.raises(BuildError, match=r"no_such_header\.h"):
        _accelerator.build()
    assert "no_such_header.h" in _accelerator.failure()
    assert _accelerator.build_in_background() is False
    with pytest.raises(BuildError, match=r"an earlier build of the accelerator for torch .* failed"):
        _accelerator.build()
    assert _accelerator.built() is None


@pytest.mark.parametrize("name", OPERATORS)
def test_conversions_of_the_decomposition(name):
    compare(name, [y.numpy() for y in OPERATORS[name].decomposed(torch.from_numpy(VALUES))])
