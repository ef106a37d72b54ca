"""CUDA in ONNX Runtime as far as a CPU allows: registration and runs in a fake of its API, sessions on the CPU."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import opforge.onnxruntime
from opforge.build import load_library
from opforge.build.native import load_native
from opforge.engines.onnxruntime import _devices
from opforge.engines.onnxruntime._adapter import adapter_path
from opforge.errors import ArgumentError, UnsupportedError
from opforge.ops import swish
from tests import device_notes, launched
from tests.unit.onnxruntime.conftest import FLOAT, INCLUDE, make_model
from tests.unit.onnxruntime.fake_ort import Ort

ort = pytest.importorskip("onnxruntime")
VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])
pytestmark = pytest.mark.compiler
CUDA = "CUDAExecutionProvider"
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def one_node(kind, domain):
    node = helper.make_node(kind, ["x"], ["y"], domain=domain)
    return make_model([node], {"x": (FLOAT, ["N", 4])}, {"y": (FLOAT, None)}, ((domain, 1),))


@pytest.fixture(scope="module")
def double(tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    return [device_notes.build(folder, device) for device in (1, 2)]


def copied_adapter(folder):
    """Give a copy of the adapter, which meets the fake; the original may have met this process's ONNX Runtime."""
    load_native(adapter_path(), "adapter")  # and libopforge with it, which the copy does not find by itself
    return ctypes.CDLL(str(shutil.copy(adapter_path(), folder / "adapter_apart.so")))


def define(adapter, row):
    text = ctypes.create_string_buffer(1000)
    assert adapter.opforge_onnxruntime_define(ctypes.c_void_p(row.address), text, 1000) == 0, text.value


@pytest.fixture(scope="module")
def apart(tmp_path_factory, double):
    library = copied_adapter(tmp_path_factory.mktemp("apart"))
    for file in reversed(double):  # the order makes no difference
        define(library, load_library(file).operator("test.device::Double:1"))
    return library


@pytest.fixture(scope="module")
def session_fake(apart):
    """A process has one ONNX Runtime, so the copy of the adapter gets one fake."""
    made = Ort()
    ops = made.register(apart)
    return made, {op.provider: op for op in ops}, ops


def test_each_kernel_is_registered_for_its_provider(session_fake, apart):
    fake, by_provider, ops = session_fake
    assert [op.name for op in ops] == ["Double", "Double"]
    assert set(by_provider) == {"", CUDA}
    assert {op.element for op in ops} == {1}
    assert fake.register(apart) == []  # the second session's options get the same domains


def test_a_kernel_gets_stream_device_and_scratch(session_fake, double):
    fake, by_provider, _ = session_fake
    seen = device_notes.notes(double[1])
    fake.asked.clear()
    np.testing.assert_array_equal(fake.run(by_provider[CUDA], X), 2 * X)
    device_notes.check(seen, 5, set(fake.blocks))
    assert fake.asked == ["scratch", "scratch"]  # what the context gives knows the stream


def test_without_a_stream_the_node_s_own_allocator_serves(session_fake, double):
    fake, by_provider, _ = session_fake
    fake.asked.clear()
    fake.given_stream = None
    try:
        np.testing.assert_array_equal(fake.run(by_provider[CUDA], X), 2 * X)
    finally:
        fake.given_stream = device_notes.STREAM
    assert fake.asked == ["allocator", "allocator"]
    assert device_notes.notes(double[1]).stream is None


def test_an_output_that_nobody_reads_lies_on_the_device(session_fake):
    fake, by_provider, _ = session_fake
    fake.asked.clear()
    fake.run(by_provider[CUDA], X, wanted=False)
    assert len(fake.asked) == 3


def test_the_cpu_s_kernel_stays_as_it_is(session_fake, double):
    fake, by_provider, _ = session_fake
    cpu, cuda = map(device_notes.notes, double)
    before, asked = (cpu.calls, cuda.calls), len(fake.asked)
    np.testing.assert_array_equal(fake.run(by_provider[""], X), 2 * X)
    assert (cpu.calls, cuda.calls) == (before[0] + 1, before[1])
    assert (cpu.stream, cpu.context_type, cpu.input_type) == (None, 1, 1)
    assert len(fake.asked) == asked


def test_what_goes_wrong_has_words(session_fake, double):
    fake, by_provider, _ = session_fake
    seen = device_notes.notes(double[1])
    seen.fail = 3
    try:
        with pytest.raises(RuntimeError, match=r"^9: test.device::Double: the test's failure"):
            fake.run(by_provider[CUDA], X)
    finally:
        seen.fail = 0


def test_kernels_of_the_launcher(tmp_path, monkeypatch):
    library, driver = launched.bent(monkeypatch, tmp_path)
    adapter = copied_adapter(tmp_path)
    define(adapter, library.operator(launched.bend.key))
    fake = Ort()
    (op,) = fake.register(adapter)
    assert (op.name, op.provider) == ("Bend", CUDA)
    np.testing.assert_allclose(fake.run(op, X, slope=0.25), launched.bend.reference(X, slope=0.25), rtol=1e-6)
    seen = launched.seen(driver)
    assert (seen.device, seen.stream) == (5, device_notes.STREAM)
    monkeypatch.setenv("OPFORGE_FAKE_FAIL", "cuLaunchKernel=719")
    with pytest.raises(RuntimeError, match=r"test.launched::Bend: CUDA_ERROR_LAUNCH_FAILED \(719\)"):
        fake.run(op, X, slope=0.25)


# ---- sessions of the build for the CPU


@pytest.fixture(scope="module")
def swish_model():
    return one_node("Swish", "org.opforge")


def test_the_cpu_s_build_refuses_a_gpu_before_anything_is_built(monkeypatch, swish_model):
    if CUDA in ort.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    built = device_notes.emulate_builds(monkeypatch)
    for options in ({"device": "cuda"}, {"providers": [CUDA]}, {"providers": [(CUDA, {"device_id": 0})]}):
        with pytest.raises(UnsupportedError, match=r"built without CUDA(?s:.*)CUDAExec(?s:.*)CPUExec(?s:.*)-gpu"):
            opforge.onnxruntime.session(swish_model, **options)
    assert built == []
    assert opforge.onnxruntime.session(swish_model, device="cpu").run(None, {"x": X})[0].shape == X.shape


def test_arguments_that_do_not_go_together(swish_model):
    with pytest.raises(ArgumentError, match="device= chooses the providers itself"):
        opforge.onnxruntime.session(swish_model, device="cuda", providers=[CUDA])
    with pytest.raises(ArgumentError, match=r"no such device(?s:.*)cpu, cuda(?s:.*)'tpu'"):
        opforge.onnxruntime.session(swish_model, device="tpu")
    with pytest.raises(ArgumentError, match="provider=True chooses who runs what itself"):
        opforge.onnxruntime.session(swish_model, device="cuda", provider=True)


def test_sessions_of_the_cpu_with_cuda_kernels_registered(double):
    for file in double:
        opforge.onnxruntime.register_library(load_library(file))
    model = one_node("Double", "test.device")
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(adapter_path()))
    cpu, cuda = map(device_notes.notes, double)
    before = cpu.calls, cuda.calls
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * X)
    assert (cpu.calls, cuda.calls) == (before[0] + 1, before[1])


def test_operators_are_made_known_for_both(monkeypatch, swish_model):
    built = device_notes.emulate_builds(monkeypatch)
    path = opforge.onnxruntime.library(swish, device="cuda")
    assert len(built) <= 1  # another test may have had it built
    options = ort.SessionOptions()
    options.register_custom_ops_library(path)
    session = ort.InferenceSession(swish_model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], swish.reference(X), rtol=1e-6)


@pytest.mark.skipif(VERSION < (1, 24), reason="ONNX Runtime before 1.24 does not say who runs which node")
def test_our_provider_leaves_cuda_kernels_alone_and_the_cpu_is_no_place_for_nodes_of_a_gpu(double):
    for file in double:
        opforge.onnxruntime.register_library(load_library(file))
    model = one_node("Double", "test.device")
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(adapter_path()))
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with pytest.raises(UnsupportedError, match=r"would run on the CPU(?s:.*)test.device::Double(?s:.*)device=.cpu"):
        _devices.check_placement(session, [("test.device", "Double")], "model")
    _devices.check_placement(session, [("test.device", "Other")], "model")
    if CUDA not in ort.get_available_providers():
        with pytest.raises(UnsupportedError, match=r"could not start its CUDA provider(?s:.*)\['CPUExecution"):
            _devices.check_started(session, "model")


def test_the_places_of_the_functions_for_devices(tmp_path):
    """A custom operator of the CPU calls them in the installed ONNX Runtime."""
    path = tmp_path / "places.so"
    source = Path(__file__).with_name("places.cc")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared"]
    folders = [f"-I{INCLUDE}", f"-I{INCLUDE.parent / 'adapters'}"]
    subprocess.run(["g++", *flags, *folders, str(source), "-o", str(path), "-ldl"], check=True)
    model = make_model([helper.make_node("Places", ["x"], ["y"], domain="test.places")],
                       {"x": (FLOAT, [4])}, {"y": (FLOAT, [4])}, (("test.places", 1),))  # fmt: skip
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(path))
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": np.zeros(4, np.float32)})[0]
    assert found.tolist() == [0, 1, 1, 1]  # device, memory was given, it could be written, no stream
