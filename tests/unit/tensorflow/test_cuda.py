"""CUDA in TensorFlow as far as a CPU allows: kernels in a fake of its C API, placement, what reads streams."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from opforge.build import device_library, load_library
from opforge.build.native import load_native
from opforge.errors import ToolchainError
from opforge.frameworks._devices import DeviceLoader
from opforge.frameworks.tensorflow import _stream
from opforge.frameworks.tensorflow._adapter import _framework, adapter
from opforge.frameworks.tensorflow._entries import ENTRIES, _function
from opforge.ops import clip_sigmoid, swish
from tests import device_notes, launched
from tests.unit.tensorflow.conftest import INCLUDE

pytestmark = pytest.mark.compiler
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
KEY = b"test.device::Double:1"


@pytest.fixture(scope="module")
def double(tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    return [device_notes.build(folder, device) for device in (1, 2)]


class Fake:
    """A copy of the adapter in a fake of TensorFlow."""

    def __init__(self, folder: Path) -> None:
        path = folder / "libfake.so"
        source = Path(__file__).with_name("fake_host.cc")
        flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
        subprocess.run(["g++", *flags, str(source), "-o", str(path)], check=True)
        original = Path(adapter()._library._name)
        load_native(original, "adapter")  # and libopforge with it, which the copy does not find by itself
        shutil.copy(original, folder / "apart.so")
        self.host, self.adapter = ctypes.CDLL(str(path)), ctypes.CDLL(str(folder / "apart.so"))
        self.host.fake_devices.restype = ctypes.c_char_p
        self._call(self.adapter.opforge_tensorflow_open, str(path).encode())

    def _call(self, function, *arguments) -> None:
        words = ctypes.create_string_buffer(4000)
        if function(*arguments, words, ctypes.c_size_t(len(words))):
            raise RuntimeError(words.value.decode())

    def define(self, row, name: str) -> None:
        self._call(self.adapter.opforge_tensorflow_define, ctypes.c_void_p(row.address), name.encode())

    def run(self, name: str, device: str, x: np.ndarray) -> np.ndarray:
        y = np.full_like(x, np.nan)
        words = ctypes.create_string_buffer(20000)
        dims = (ctypes.c_int64 * x.ndim)(*x.shape)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (x, y))
        code = self.host.fake_run(
            name.encode(), device.encode(), *pointers, dims, x.ndim, words, ctypes.c_size_t(len(words))
        )
        if code:
            raise RuntimeError(f"{code}: {words.value.decode()}")
        return y

    def temporary(self) -> set[int]:
        found = (ctypes.c_void_p * 8)()
        return set(found[: self.host.fake_temporary(found, 8)])


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    made = Fake(tmp_path_factory.mktemp("fake"))
    made.stream = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: device_notes.STREAM)
    made.adapter.opforge_tensorflow_set_stream(made.stream)
    return made


@pytest.fixture(scope="module")
def known(fake, double):
    for path in double:
        row = load_library(path).operator("test.device::Double:1")
        fake.define(row, "Double")
        fake.define(row, "Double")  # again: nothing is registered a second time
    return fake


def test_kernels_for_both_devices_and_words_for_xla(known):
    assert known.host.fake_devices(b"Double").split() == [b"CPU", b"GPU", b"XLA_CPU_JIT", b"XLA_GPU_JIT"]
    with pytest.raises(RuntimeError, match=r"^12: (?s:.*)jit_compile=True cannot compile"):
        known.run("Double", "XLA_GPU_JIT", X)


def test_a_kernel_gets_stream_device_and_scratch(known, double):
    seen = device_notes.notes(double[1])
    np.testing.assert_array_equal(known.run("Double", "GPU", X), 2 * X)
    device_notes.check(seen, 6, known.temporary())


def test_the_cpu_s_kernel_stays_as_it_is(known, double):
    cpu, cuda = map(device_notes.notes, double)
    before = cpu.calls, cuda.calls
    np.testing.assert_array_equal(known.run("Double", "CPU", X), 2 * X)
    assert (cpu.calls, cuda.calls) == (before[0] + 1, before[1])
    assert (cpu.stream, cpu.context_type, cpu.input_type) == (None, 1, 1)
    assert known.temporary() == set()


def test_what_goes_wrong_has_words(known, double):
    seen = device_notes.notes(double[1])
    seen.fail = 3
    with pytest.raises(RuntimeError, match=r"^12: test.device::Double: the test's failure"):
        known.run("Double", "GPU", X)
    seen.fail = 0
    known.host.fake_refuse_memory(True)
    with pytest.raises(RuntimeError, match=r"^8: test.device::Double: no memory on the GPU"):
        known.run("Double", "GPU", X)
    known.host.fake_refuse_memory(False)
    known.adapter.opforge_tensorflow_set_stream(None)
    with pytest.raises(RuntimeError, match=r"^12: (?s:.*)no stream of this device(?s:.*)no function that reads it"):
        known.run("Double", "GPU", X)
    known.adapter.opforge_tensorflow_set_stream(known.stream)


def test_the_loader_brings_kernels_or_says_what_is_missing(fake, double):
    """The first node on a GPU asks for them; each later one finds them."""
    cpu = ENTRIES.of_operator(swish).library
    fake.define(cpu, "Swish")
    asked = []

    def load(key, device_type, words, size):
        asked.append((key.decode(), device_type))
        if len(asked) == 1:
            ctypes.memmove(words, b"nothing builds them", 20)
            return 3
        fake.define(library.operator(swish.key), "Swish")
        return 0

    loader = DeviceLoader(load)
    fake.adapter.opforge_tensorflow_set_loader(loader)
    with pytest.raises(RuntimeError, match=r"^12: nothing builds them"):
        fake.run("Swish", "GPU", X)
    with pytest.MonkeyPatch.context() as patch:
        device_notes.emulate_builds(patch)
        library = device_library(swish)
    for _ in range(2):
        # The emulator has one device, and the fake says that it is the seventh.
        with pytest.raises(RuntimeError, match=r"^3: org.opforge::Swish: no such GPU"):
            fake.run("Swish", "GPU", X)
    assert asked == [(swish.key, 2)] * 2
    fake.adapter.opforge_tensorflow_set_loader(DeviceLoader())


def test_kernels_of_the_launcher(fake, tmp_path, monkeypatch):
    library, driver = launched.bent(monkeypatch, tmp_path)
    fake.define(library.operator(launched.bend.key), "Bend")
    right = launched.bend.reference(X, slope=1.5)  # which the fake gives as every attribute
    np.testing.assert_allclose(fake.run("Bend", "GPU", X), right, rtol=1e-6)
    seen = launched.seen(driver)
    assert (seen.device, seen.stream) == (6, device_notes.STREAM)
    monkeypatch.setenv("OPFORGE_FAKE_FAIL", "cuLaunchKernel=719")
    with pytest.raises(RuntimeError, match=r"^13: test.launched::Bend: CUDA_ERROR_LAUNCH_FAILED \(719\)"):
        fake.run("Bend", "GPU", X)


# ---- TensorFlow's build for the CPU


def test_a_node_on_a_gpu_that_is_not_there():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    with tf.device("/GPU:0"):
        eager = clip_sigmoid(tf.constant(X))
        traced = tf.function(lambda x: clip_sigmoid(x))(tf.constant(X))
    assert "CPU:0" in eager.device
    np.testing.assert_array_equal(eager, traced)

    @tf.function
    def placed(x):
        with tf.device("/GPU:0"):
            return clip_sigmoid(x)

    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?i)GPU:0"):
            placed(tf.constant(X))
    finally:
        tf.config.set_soft_device_placement(before)


def test_what_reads_streams_is_built_against_this_tensorflow(tmp_path):
    """In a kernel on the CPU it finds that there is none; what it finds on a GPU is for the device check."""
    path = tmp_path / "libprobe.so"
    source = Path(__file__).with_name("stream_probe.cc")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared"]
    folders = [f"-I{INCLUDE}", f"-I{INCLUDE.parent / 'adapters'}"]
    subprocess.run(["g++", *flags, *folders, str(source), "-o", str(path), "-ldl"], check=True)
    function = ctypes.c_void_p(_stream.stream_function())
    assert ctypes.CDLL(str(path)).register_probe(str(_framework()).encode(), function) == 0
    probe = _function(op_def_registry.get("OpforgeStreamProbe"))
    assert probe(tf.constant(0.0)).numpy() == 1
    assert _stream.build() == _stream.build()


def test_the_loader_of_this_process_names_what_is_missing(monkeypatch):
    def refuse(plan):
        raise ToolchainError("no nvcc", where=plan.name)

    device_notes.replace_builder(monkeypatch, refuse)
    ENTRIES.of_operator(clip_sigmoid)
    words = ctypes.create_string_buffer(16384)
    assert adapter().loader(clip_sigmoid.key.encode(), 2, words, len(words)) == 3
    text = words.value.decode()
    assert "kernels for cuda are not built" in text
    assert "no nvcc" in text
    assert "--device cuda" in text
