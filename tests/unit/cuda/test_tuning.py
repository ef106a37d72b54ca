"""Choices of `opforge tune`: the C struct, the file, kernels that read them, libraries that are loaded with them."""

import ctypes
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import opforge
from opforge.build import abi, cuda_driver, load_library, tuning
from opforge.build.toolchain import find_compiler
from opforge.build.tuning import Choice
from opforge.cuda import emulate_operators
from opforge.errors import ArgumentError, InternalError
from opforge.frameworks import numpy_host
from opforge.ops import mish, swish
from tests.unit.cuda.test_launch import Call

pytestmark = pytest.mark.compiler
INCLUDE = Path(opforge.__file__).parents[2] / "include"
PROGRAM = r"""
#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include "opforge/cuda/tuning.h"
int main() {
  std::printf("%zu %zu %zu %d", sizeof(opforge_choice), sizeof(opforge_tuning), offsetof(opforge_tuning, choices),
              OPFORGE_TUNING_CLASSES * 100 + OPFORGE_TUNING_DEVICES);
  for (long long n : {0LL, 1LL, 4095LL, 4096LL, 32767LL, 32768LL, 1LL << 26, (1LL << 27) - 1, 1LL << 40})
    std::printf(" %d", opforge::cuda::size_class(n));
}
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def device(monkeypatch):
    found = cuda_driver.Device(0, "Some GPU 9000", 90, 4, 1 << 30, 1 << 16, "13000")
    monkeypatch.setattr(cuda_driver, "find_devices", lambda: cuda_driver.Found((found,)))
    return found


def test_the_struct_and_the_classes_are_those_of_the_header(tmp_path):
    (tmp_path / "sizes.cpp").write_text(PROGRAM)
    made = tmp_path / "sizes"
    subprocess.run([*find_compiler().command, f"-I{INCLUDE}", tmp_path / "sizes.cpp", "-o", made], check=True)
    got = [int(word) for word in subprocess.run([made], capture_output=True, text=True, check=True).stdout.split()]
    sizes = [ctypes.sizeof(tuning._Choice), ctypes.sizeof(tuning._Tuning), tuning._Tuning.choices.offset]
    numbers = [0, 1, 4095, 4096, 32767, 32768, 1 << 26, (1 << 27) - 1, 1 << 40]
    assert got == [*sizes, tuning.CLASSES * 100 + tuning.DEVICES, *map(tuning.size_class, numbers)]
    assert [tuning.size_class(n) for n in numbers] == [0, 0, 0, 1, 1, 2, 5, 5, 7]


def copied(folder, operator=swish):
    """Give a library of its own, since a process keeps what it has loaded."""
    built = emulate_operators([operator]).path
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(built, folder / "swish.so"))


def test_kernels_launch_as_they_are_told(tmp_path):
    library = load_library(copied(tmp_path))
    row = library.operator(swish.key)
    kernel = row.kernel_for(((2, 32),), abi.DEVICE_CUDA)
    x = np.linspace(-4, 4, 5000, dtype=np.float32)

    def call():
        return numpy_host.call(swish, [x], {}, library=library, device=abi.DEVICE_CUDA)

    plain = call()
    klass = tuning.size_class(2 * x.size)
    for choice in (Choice(32, 1), Choice(1024, 4), Choice(64, 1000), Choice()):
        tuning.set_choice(kernel, klass, choice)
        np.testing.assert_array_equal(call(), plain)
    tuning.set_choice(kernel, klass, Choice(threads=2048))  # no block is so large: the choice has reached the launch
    with pytest.raises(Exception, match=r"(?i)2048|configuration|block"):
        call()
    tuning.set_choice(kernel, klass, Choice())
    np.testing.assert_array_equal(call(), plain)
    with pytest.raises(InternalError, match="without a table of choices"):
        tuning.set_choice(kernel, 8, Choice())


def test_what_is_stored_reaches_the_library_that_is_loaded(tmp_path, cache, device):
    first = load_library(copied(tmp_path / "first"))
    operator = first.operator(swish.key)
    kernel = operator.kernel_for(((2, 32),), abi.DEVICE_CUDA)
    name = tuning.row_name(operator, kernel, first.content_hash, 2)
    assert name.startswith(f"{swish.key}|") and name.endswith("|f32|2")
    file = tuning.store_choices(device.name, device.driver, [(name, Choice(512, 2), {"seconds": 1e-6})])
    assert file == cache / "tuning" / "v1" / "some-gpu-9000-13000.json"
    assert json.loads(file.read_text())["rows"][name]["seconds"] == 1e-6
    second = load_library(copied(tmp_path / "second"))
    address = second.operator(swish.key).kernel_for(((2, 32),), abi.DEVICE_CUDA).data
    table = tuning._Tuning.from_address(address)
    assert (table.count, table.choices[0][2].threads, table.choices[0][2].items) == (1, 512, 2)
    assert table.choices[0][2].optional == 1  # what was stored some day is no reason to fail
    assert tuning._Tuning.from_address(kernel.data).count == 0
    assert tuning.apply_stored(first) == 1


def test_each_device_gets_the_choices_of_its_kind(tmp_path, cache, monkeypatch):
    kinds = ["Small GPU", "Large GPU", "Small GPU", "GPU that nothing is known of"]
    rows = tuple(cuda_driver.Device(k, name, 90, 4, 1 << 30, 1 << 16, "13000") for k, name in enumerate(kinds))
    monkeypatch.setattr(cuda_driver, "find_devices", lambda: cuda_driver.Found(rows))
    first = load_library(copied(tmp_path / "first", mish))
    operator = first.operator(mish.key)
    kernel = operator.kernel_for(((2, 32),), abi.DEVICE_CUDA)
    klass = tuning.size_class(2 * 5000)
    name = tuning.row_name(operator, kernel, first.content_hash, klass)
    tuning.store_choices("Small GPU", "13000", [(name, Choice(64), {})])
    tuning.store_choices("Large GPU", "13000", [(name, Choice(512), {})])
    assert tuning.apply_stored(first) == 3
    table = tuning._Tuning.from_address(kernel.data)
    assert [table.choices[k][klass].threads for k in range(5)] == [64, 512, 64, 0, 0]
    assert table.count == 3
    tuning.set_choice(kernel, klass, Choice(2048), 1)  # no block is so large: device 1 reads its own row
    assert Call(first.path, 5000, device=(abi.DEVICE_CUDA, 0)).run() == 0
    call = Call(first.path, 5000, device=(abi.DEVICE_CUDA, 1))
    assert (call.run(), call.words.partition(":")[0]) == (7, "cudaErrorInvalidConfiguration (9)")


@pytest.mark.parametrize("taken", ["tuning", "tuning/v1", "tuning/v1/some-gpu-9000-13000.json"])
def test_what_cannot_be_kept_is_said_before_anything_is_measured(cache, device, taken):
    file = cache / taken
    file.parent.mkdir(parents=True)
    if taken.endswith(".json"):
        file.mkdir()
    else:
        file.touch()
    words = r"what is measured cannot be kept(?s:.*)a folder that can be written(?s:.*)Errno(?s:.*)OPFORGE_CACHE"
    for ask in (tuning.require_writable, lambda *of: tuning.store_choices(*of, [])):
        with pytest.raises(ArgumentError, match=words) as caught:
            ask(device.name, device.driver)
        assert caught.value.where == str(cache / "tuning/v1/some-gpu-9000-13000.json")


def test_a_folder_that_can_be_written_stays_as_it_was(cache, device):
    file = tuning.require_writable(device.name, device.driver)
    assert [path.suffix for path in file.parent.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[]", '{"rows": 3}', '{"rows": {"a": {"choice": {"threads": -1}}}}']
)
def test_a_damaged_file_counts_as_not_measured(tmp_path, cache, device, text):
    file = tuning.tuning_file(device.name, device.driver)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.warns(RuntimeWarning, match="is no record of tuning"):
        assert tuning.load_choices(file) == {}
    tuning.store_choices(device.name, device.driver, [("a", Choice(64), {})])  # and is written anew
    assert tuning.load_choices(file) == {"a": Choice(64)}


def test_writers_at_once_lose_no_row(cache):
    def write(k):
        for i in range(10):
            tuning.store_choices("gpu", "1", [(f"{k}-{i}", Choice(k), {})])

    threads = [threading.Thread(target=write, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tuning.load_choices(tuning.tuning_file("gpu", "1"))) == 40
    assert sorted(p.suffix for p in (cache / "tuning" / "v1").iterdir()) == [".json", ".lock"]


FAKE = Path(opforge.__file__).parents[2] / "tools" / "device_check" / "fake_driver.cpp"
ASK = "from opforge.build.cuda_driver import find_devices; f = find_devices(); print(len(f.devices), f.reason)"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "1 "),
        ({"OPFORGE_FAKE_INIT": "100"}, "0 the NVIDIA driver does not start: error 100, CUDA_ERROR_NO_DEVICE"),
        ({"OPFORGE_FAKE_INIT": "35"}, "0 the NVIDIA driver does not start: error 35, CUDA_ERROR_INSUFFICIENT_DRIVER"),
        ({"OPFORGE_FAKE_DEVICES": "0"}, "0 the NVIDIA driver sees no device"),
        ({"OPFORGE_CUDA_DRIVER": "/nowhere/libcuda.so.1"}, "0 the NVIDIA driver is not installed: /nowhere/libcuda"),
    ],
)
def test_why_there_is_no_gpu(tmp_path_factory, changes, words):
    made = tmp_path_factory.getbasetemp() / "fake_driver.so"
    if not made.exists():
        subprocess.run([*find_compiler().command, "-std=c++17", "-fPIC", "-shared", FAKE, "-o", made], check=True)
    environment = {"PYTHONPATH": str(INCLUDE.parent / "src"), "OPFORGE_CUDA_DRIVER": str(made), **changes}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(words), done.stdout
