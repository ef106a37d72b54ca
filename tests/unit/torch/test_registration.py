"""Registration is all or nothing: what fails is undone, says so each time, and works once its cause is gone."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import opforge as of
import opforge.torch
from opforge.build import library_for
from opforge.build.native import call_native, load_native, to_error
from opforge.errors import OpforgeError
from opforge.frameworks.torch import _batching
from opforge.ops import mish

SHIMS = Path(__file__).parents[3] / "adapters" / "torch" / "stable" / "shims.h"

# PyTorch's stable C ABI as far as registration asks for it: step `fake_refused` fails, objects are counted.
FAKE = r"""
#include <stdint.h>
#include <string.h>
int32_t fake_refused = -1, fake_step = 0, fake_alive = 0, fake_schemas = 0, fake_kernels = 0;
static int refuses(void) { return fake_step++ == fake_refused; }
static int32_t make(void** made) {
  if (refuses()) return 1;
  ++fake_alive;
  *made = &fake_alive;
  return 0;
}
int32_t aoti_torch_library_init_fragment(const char* a, const char* b, uint32_t c, void** made) { return make(made); }
int32_t aoti_torch_library_init_impl(const char* a, const char* b, const char* c, uint32_t d, void** made) {
  return make(made);
}
int32_t aoti_torch_delete_library_object(void* object) { return object == &fake_alive ? (--fake_alive, 0) : 1; }
int32_t aoti_torch_library_def(void* library, const char* schema) {
  if (library != &fake_alive || refuses()) return 1;
  return ++fake_schemas, 0;
}
int32_t torch_library_impl(void* library, const char* name, void* kernel, uint64_t version) {
  if (library != &fake_alive || kernel == 0 || refuses()) return 1;
  return ++fake_kernels, 0;
}
uint64_t aoti_torch_abi_version(void) { return 0; }
"""


@pytest.fixture
def fake(tmp_path):
    """A copy of the stable adapter in a fake of PyTorch."""
    names = re.findall(r"^  X\(\w+, (\w+),", SHIMS.read_text(), re.MULTILINE)
    rest = [f"int32_t {name}(void) {{ return 0; }}" for name in names if f" {name}(" not in FAKE]
    source, path = tmp_path / "fake.c", tmp_path / "libfake.so"
    source.write_text("\n".join([FAKE, *rest]))
    subprocess.run(["cc", "-std=c11", "-w", "-shared", "-fPIC", source, "-o", path], check=True)
    original = next(Path(of.__file__).parent.glob("_lib/libopforge_torch.so"))
    load_native(original, "adapter")  # and libopforge with it, which the copy does not find by itself
    shutil.copy(original, tmp_path / "apart.so")
    host, native = ctypes.CDLL(str(path)), ctypes.CDLL(str(tmp_path / "apart.so"))
    call_native(native.opforge_torch_open, str(path).encode(), error=to_error)
    return host, native


STEPS = ["library_init_fragment", "library_init_impl", "library_init_impl", "the definition of test_apart::mish"]
STEPS += ["library_impl", "library_impl"]


@pytest.mark.parametrize("refused", range(len(STEPS)))
def test_each_step_that_fails_undoes_those_before(fake, refused):
    host, native = fake
    row = library_for([mish]).operator(mish.key)

    def count(name: str) -> ctypes.c_int32:
        return ctypes.c_int32.in_dll(host, f"fake_{name}")

    def define(at: int) -> None:
        count("refused").value, count("step").value = at, 0
        call_native(native.opforge_torch_define, ctypes.c_void_p(row.address), b"test_apart", b"mish", error=to_error)

    for _ in range(2):
        with pytest.raises(OpforgeError, match=rf"^PyTorch failed in {STEPS[refused]}$"):
            define(refused)
        assert count("alive").value == 0
    define(-1)
    assert count("alive").value == 3
    kernels = count("kernels").value
    define(-1)  # what is registered stays as it is
    assert (count("alive").value, count("kernels").value, count("step").value) == (3, kernels, 0)


@of.formula("test.registration::Taken")
def taken(x):
    """Find its name taken."""
    return 2 * x


def test_a_name_that_others_took_is_refused_each_time_and_free_afterwards():
    other = torch._C._dispatch_library("FRAGMENT", "test_registration", "")  # torch.library would ask torch.ops first
    other.define("taken(Tensor x) -> Tensor", "", ())
    words = []
    for _ in range(2):
        with pytest.raises(OpforgeError) as caught:
            opforge.torch.register(taken)
        words.append(str(caught.value))
    assert words[0] == words[1]
    assert "test_registration::taken" in words[0]
    other.reset()
    assert opforge.torch.register(taken)(torch.ones(2)).tolist() == [2, 2]


@of.formula("test.registration::Late")
def late(x):
    """Fail in what Python registers."""
    return 3 * x


def test_what_python_registers_is_undone_too(monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(_batching, "register", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"^not now$"):
                opforge.torch.register(late)
    assert opforge.torch.register(late)(torch.ones(2)).tolist() == [3, 3]
    assert torch.vmap(late)(torch.ones(2, 2)).tolist() == [[3, 3], [3, 3]]
    x = torch.ones(2, requires_grad=True)
    late(x).sum().backward()
    assert x.grad.tolist() == [3, 3]
