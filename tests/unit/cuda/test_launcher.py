"""Kernels without nvcc: what the launcher makes of a call, of devices and errors, and of files that are damaged."""

import ctypes
import random
import struct
import zlib

import numpy as np
import pytest

from opforge.build import abi, load_library
from opforge.build.cuda.launcher import find_launcher
from opforge.build.cuda_driver import Driver
from opforge.build.invoke import Call
from opforge.build.tuning import Choice, set_choice
from opforge.errors import OpforgeError, UnsupportedError
from opforge.frameworks import numpy_host
from opforge.schema.dtypes import DType
from tests import launched
from tests.launched import gate

pytestmark = [pytest.mark.compiler, pytest.mark.xdist_group("launcher")]
RNG = np.random.default_rng(3)
TRAILER = 24


@pytest.fixture
def driver(monkeypatch):
    return launched.use_fake_driver(monkeypatch)


@pytest.fixture
def built(monkeypatch, driver):
    return launched.build(monkeypatch)


@pytest.fixture
def library(built, tmp_path):
    return launched.fresh(built, tmp_path)


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def call(library, *arrays, operator=gate):
    return numpy_host.call(operator, arrays, {}, library=library, device=abi.DEVICE_CUDA)


def run(library, x, y, device=0, stream=0, kind=abi.DEVICE_CUDA, data=True):
    """Call the kernel field by field; return its status and words."""
    kernel = library.operator(gate.key).kernel_for(((2, 32),), abi.DEVICE_CUDA)
    made = Call(kind, [])
    made.device = abi.Device(kind, device)
    inputs, outputs = made.arguments([[x], [x]]), made.arguments([[y]])
    attributes = (abi.Attribute * 1)()
    made.attribute(attributes[0], "float", 0.5)
    context = made.context(kernel)
    context.stream = stream
    if not data:
        context.kernel_data = None
    status = abi.KernelFunction(kernel.run)(*map(ctypes.byref, (context, inputs, outputs)), attributes)
    return status, made.text


def reference(x, w):
    x, w = (np.asarray(one, np.float64) for one in (x, w))
    return np.where(x > w, np.tanh(x * w), 0.5 * x)


@pytest.mark.parametrize(
    ("x", "w", "blocks"),
    [
        (normal(70_000), normal(70_000), 69),  # 16 bytes a thread
        (normal(70_001)[1:], normal(70_000), 274),  # no address that takes 16 bytes
        (normal(300, 9).T, normal(300), 11),  # strides
        (normal(), normal(), 1),
    ],
)
def test_numbers_and_what_is_launched(library, driver, x, w, blocks):
    before = launched.seen(driver).launches
    np.testing.assert_allclose(call(library, x, w), reference(x, w), rtol=2e-6, atol=1e-7)
    seen = launched.seen(driver)
    assert seen.launches == before + 1
    assert (seen.grid[0], seen.block[0]) == (blocks, 256)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_in_parts(library, driver, dtype):
    x, w, grad = normal(3, 20_000, dtype=dtype), normal(3, 1, dtype=dtype), normal(3, 20_000, dtype=dtype)
    before = launched.seen(driver).launches
    grad_x, grad_w = call(library, grad, x, w, operator=gate.gradient_operator)
    assert launched.seen(driver).launches == before + 3  # values, parts, their sum
    wide = [one.astype(np.float64) for one in (grad, x, w)]
    right = gate.gradient_operator.reference(*wide)
    for got, expected in zip((grad_x, grad_w), right, strict=True):
        assert got.dtype == dtype and got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5 if dtype is np.float32 else 1e-12, atol=1e-4)
    again = call(library, grad, x, w, operator=gate.gradient_operator)
    assert all((one == other).all() for one, other in zip(again, (grad_x, grad_w), strict=True))


@pytest.mark.parametrize(
    ("shape", "summed", "launches"),
    [
        ((700, 2), (700, 1), [3]),  # a thread per sum, 256 in a block
        ((700, 30), (700, 1), [22]),  # 8 threads per sum
        ((20, 1024), (20, 1), [20]),  # all threads of a block
        ((64, 700), (1, 700), [22]),  # a warp takes neighbours, 8 threads per sum
        ((2048, 700), (1, 700), [88, 3]),  # in parts of 512, then a thread per sum
        ((1100, 64), (1, 1), [5, 1]),  # in parts of 16384, then 2 threads for one sum
    ],
)
def test_threads_of_a_sum_by_its_length(library, driver, shape, summed, launches):
    x, w, grad = normal(*shape), normal(*summed), normal(*shape)
    before = launched.seen(driver).launches
    got = call(library, grad, x, w, operator=gate.gradient_operator)[1]
    seen = launched.seen(driver)
    assert seen.launches - before == 1 + len(launches)
    assert (seen.grid[0], seen.block[0]) == (launches[-1], 256)
    right = gate.gradient_operator.reference(*(one.astype(np.float64) for one in (grad, x, w)))[1]
    np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-4)


def test_the_contexts_device_and_stream_and_one_module_per_device(library, driver, monkeypatch):
    monkeypatch.setenv("OPFORGE_FAKE_DEVICES", "3")
    fake = ctypes.CDLL(str(driver))
    current = ctypes.c_void_p()
    x, y = normal(9), np.zeros(9, np.float32)
    before = launched.seen(driver).loads
    for device in (0, 2, 0, 2, 1):
        y[:] = 0
        assert run(library, x, y, device, 0x5EA0 + device) == (0, "")
        np.testing.assert_allclose(y, reference(x, x), rtol=2e-6)
        seen = launched.seen(driver)
        assert (seen.device, seen.stream) == (device, 0x5EA0 + device)
        fake.cuCtxGetCurrent(ctypes.byref(current))
        assert current.value is None  # as it was before
    assert launched.seen(driver).loads == before + 3


def test_the_threads_own_context_is_taken_where_it_is_of_the_device(library, driver, monkeypatch):
    monkeypatch.setenv("OPFORGE_FAKE_DEVICES", "2")
    session = Driver()
    session.enter(1)
    try:
        x, y = normal(9), np.zeros(9, np.float32)
        for device in (1, 0):
            assert run(library, x, y, device) == (0, "")
            assert launched.seen(driver).device == device
        assert session.number("cuCtxGetDevice", ctypes.c_int) == 1
    finally:
        session.call("cuCtxSetCurrent", None)


def test_a_first_call_while_a_stream_is_captured(library):
    session = Driver()
    stream = session.stream()
    session.begin_capture(stream)
    try:
        x, y = normal(9), np.zeros(9, np.float32)
        assert run(library, x, y, stream=stream) == (0, "")
        np.testing.assert_allclose(y, reference(x, x), rtol=2e-6)
    finally:
        session.end_capture(stream)


def test_empty_tensors_ask_for_no_driver(built, tmp_path, monkeypatch):
    monkeypatch.setenv("OPFORGE_CUDA_DRIVER", str(tmp_path / "libcuda.so.1"))
    library = launched.fresh(built, tmp_path)
    empty = np.zeros((0,), np.float32)
    assert run(library, empty, empty, device=99) == (0, "")
    status, words = run(library, normal(3), normal(3))
    assert status == 3
    assert words.startswith(f"no GPU: the NVIDIA driver is not installed: {tmp_path / 'libcuda.so.1'}: cannot open")


@pytest.mark.parametrize(
    ("changes", "device", "status", "words"),
    [
        ({"INIT": "100"}, 0, 3, "no GPU: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"),
        (
            {"INIT": "35"},
            0,
            3,
            "no GPU: the NVIDIA driver does not start: CUDA_ERROR_INSUFFICIENT_DRIVER (35)",
        ),
        ({}, 1, 1, "no such GPU: CUDA_ERROR_INVALID_DEVICE (101): the fake driver refuses"),
        ({"FAIL": "cuLaunchKernel=719"}, 0, 7, "CUDA_ERROR_LAUNCH_FAILED (719): the fake driver refuses"),
        ({"FAIL": "cuLaunchKernel=2"}, 0, 4, "the GPU has no memory left: CUDA_ERROR (2)"),
        ({"FAIL": "cuModuleLoadDataEx=222"}, 0, 3, "the driver is older than the compiler of the kernels: CUDA_ERROR"),
        ({"FAIL": "cuModuleLoadDataEx=200"}, 0, 3, "the driver cannot read the kernels' code (is it older than their "),
        ({"FAIL": "cuModuleLoadDataEx=209"}, 0, 3, "the library has no code for this GPU (it was built for sm_90 "),
        (
            {"CAPABILITY": "80"},
            0,
            3,
            "the library has no code for this GPU (sm_80): it was built for sm_90 compute_90;",
        ),
    ],
)
def test_what_the_driver_refuses(library, driver, monkeypatch, changes, device, status, words):
    for name, value in changes.items():
        monkeypatch.setenv(f"OPFORGE_FAKE_{name}", value)
    x, y = normal(9), np.zeros(9, np.float32)
    found, told = run(library, x, y, device)
    assert (found, told[: len(words)]) == (status, words)
    assert not y.any()
    if "INIT" not in changes:  # which is asked once; the others are told once, and the next call is a new one
        for name in changes:
            monkeypatch.delenv(f"OPFORGE_FAKE_{name}")
        assert run(library, x, y) == (0, "")


@pytest.mark.parametrize("function", ["cuModuleGetFunction", "cuFuncLoad"])
def test_what_is_loaded_in_part_is_given_back(library, driver, monkeypatch, function):
    x, y = normal(9), np.zeros(9, np.float32)
    before = launched.seen(driver).loads
    monkeypatch.setenv("OPFORGE_FAKE_FAIL", f"{function}=2")
    for _ in range(3):
        assert run(library, x, y)[0] == 4
    assert launched.seen(driver).loads == before
    monkeypatch.delenv("OPFORGE_FAKE_FAIL")
    assert run(library, x, y) == (0, "")
    assert launched.seen(driver).loads == before + 1


def test_what_the_host_does_wrong(library):
    x = normal(3)
    assert run(library, x, x, kind=abi.DEVICE_CPU) == (1, "a CUDA kernel was called for another device")
    status, words = run(library, x, x, data=False)
    assert (status, words[:44]) == (7, "the host says not which kernel it calls: opf")
    with pytest.raises(UnsupportedError, match="no kernel for these dtypes"):
        call(library, x.astype(np.float16), x.astype(np.float16))


@pytest.mark.parametrize(
    ("capability", "code"), [("80", "sm_80"), ("86", "sm_86"), ("89", "sm_86"), ("90", "compute_86"), ("75", "")]
)
def test_the_code_that_fits_the_device_best(monkeypatch, driver, tmp_path, capability, code):
    library = launched.fresh(launched.build(monkeypatch, "sm_80", "sm_86"), tmp_path)
    assert library.architectures == ("sm_80", "sm_86", "compute_86")
    monkeypatch.setenv("OPFORGE_FAKE_CAPABILITY", capability)
    x, y = normal(9), np.zeros(9, np.float32)
    before = launched.seen(driver).loads
    assert run(library, x, y)[0] == (0 if code else 3)
    seen = launched.seen(driver)
    assert (seen.loads - before, seen.architecture.decode() if code else "") == (bool(code), code)


def test_choices_of_tune(library, driver, monkeypatch):
    kernel = library.operator(gate.key).kernel_for(((2, 32),), abi.DEVICE_CUDA)
    x = normal(70_000)
    for choice, launch in (
        (Choice(threads=128, items=2), (69, 128)),
        (Choice(threads=512), (35, 512)),
        (Choice(threads=512, items=3), (12, 512)),
    ):
        set_choice(kernel, 2, choice)
        np.testing.assert_allclose(call(library, x, x), reference(x, x), rtol=2e-6)
        seen = launched.seen(driver)
        assert (seen.grid[0], seen.block[0]) == launch
    monkeypatch.setenv("OPFORGE_FAKE_THREADS", "384")  # what the kernel's registers leave room for
    call(library, x, x)
    assert launched.seen(driver).block[0] == 256


def table(path):
    """Ask a file for its table: the reason why there is none, "" where there is one."""
    entry = ctypes.CDLL(str(path)).opforge_library_v1
    entry.restype = ctypes.c_void_p
    reason = ctypes.create_string_buffer(1024)
    made = entry(ctypes.byref(abi.new_host(reason)))
    return "" if made else reason.value.decode()


def with_payload(content):
    """Put a payload behind the launcher, with a trailer that fits it."""
    trailer = b"OPFORGEK" + struct.pack("<IIQ", 1, zlib.crc32(content), len(content))
    return find_launcher().read_bytes() + content + trailer


def test_files_that_are_damaged(built, tmp_path):
    whole = built.read_bytes()
    launcher = find_launcher().stat().st_size
    other = whole[:-16] + struct.pack("<I", 7) + whole[-12:]
    larger = whole[:-8] + struct.pack("<Q", len(whole))
    spoiled = bytearray(whole)
    spoiled[launcher + 100] ^= 1
    held = whole[launcher:-TRAILER]
    at = held.rindex(b"compute_90\0") + 11  # how long the last code of PTX is
    endless = held[:at] + struct.pack("<Q", 1 << 60) + held[at + 8 :]
    for number, (content, words) in enumerate(
        [
            (whole[:launcher], "it holds no kernels: it is the launcher alone, or its end was cut off"),
            (whole[:-1], "it holds no kernels: it is the launcher alone, or its end was cut off"),
            (other, "its kernels are in format 7, this launcher reads 1; build it again"),
            (larger, "its kernels are damaged: they are said to be larger than the file"),
            (bytes(spoiled), "its kernels are damaged: their checksum is another; build it again"),
            (with_payload(b""), "what it holds is not as this launcher reads it; build it again"),
            (with_payload(held[:-1]), "what it holds is not as this launcher reads it; build it again"),
            (with_payload(endless), "what it holds is not as this launcher reads it; build it again"),
            (with_payload(held + b"\0"), "what it holds is not as this launcher reads it; build it again"),
            (with_payload(struct.pack("<I", 99) + held[4:]), "it is built for ABI 99; build it again"),
            (with_payload(held), ""),
        ]
    ):
        path = tmp_path / f"damaged_{number}.so"
        path.write_bytes(content)
        found = table(path)
        assert found.startswith(words) and bool(found) == bool(words), number
    with pytest.raises(OpforgeError, match=r"the library refuses this host(?s:.*)it holds no kernels"):
        load_library(tmp_path / "damaged_0.so")


def test_no_payload_reads_beyond_its_end(built, tmp_path):
    launcher = find_launcher().stat().st_size
    held = built.read_bytes()[launcher:-TRAILER]
    chance = random.Random(7)
    refused = 0
    for number in range(150):
        content = bytearray(held[: chance.choice([len(held), chance.randrange(len(held))])])
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(max(1, len(content) - 8))
            content[at : at + 4] = chance.choice([b"\xff" * 4, struct.pack("<I", chance.randrange(1 << 20)), bytes(4)])
        path = tmp_path / f"mutated_{number}.so"
        path.write_bytes(with_payload(bytes(content)))
        refused += bool(table(path))
    assert refused > 75


def test_the_table_is_that_of_the_plan(library):
    for operator in launched.plan().operators:
        row = library.operator(operator.key)
        assert row.schema_hash == operator.schema_hash
        assert row.signature == str(operator.signature)
        assert row.types == operator.types_text
        assert (row.flags, row.autocast, row.gradient) == (operator.flags, operator.autocast, operator.gradient or "")
        assert {kernel.flags for kernel in row.kernels} == {abi.KERNEL_STRIDED}
    dtypes = [
        DType.from_dlpack(*kernel.dtypes[0]).name for kernel in library.operator("test.launched::GateGrad:1").kernels
    ]
    assert dtypes == ["f32", "f64"]
    assert library.architectures == ("sm_90", "compute_90")
