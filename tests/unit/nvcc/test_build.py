"""Libraries that nvcc builds: what they hold, what they export, and what they say on a machine without a GPU."""

import ctypes
import json
import subprocess

import numpy as np
import pytest

import opforge as of
from opforge.build import abi, device_library, load_library, manifest
from opforge.build.cuda import build_cuda_library
from opforge.build.cuda_driver import no_gpu_reason
from opforge.build.plan import plan_library
from opforge.errors import ArgumentError, BuildError
from opforge.ops import mish
from opforge.schema import registry

ARCHITECTURES = ("sm_80", "sm_90")
WERROR = ("-Werror", "all-warnings")
F32 = ((2, 32),)
TOGETHER = pytest.mark.xdist_group("every")  # one process builds it


@of.formula("test.nvcc::Gate")
def gate(x, w, *, slope: float = 0.5):
    """Broadcast, so that gradients are sums; nothing that takes long to compile."""
    return of.where(x > w, x * w, slope * x)


@of.formula("test.nvcc::Narrow", dtypes=["f32"])
def narrow(x):
    """Of one dtype, for what does not depend on what is compiled."""
    return x * 0.5


def every_plan():
    """Plan the library of all operators of the package."""
    import opforge.ops  # noqa: F401 - declares them

    own = [o for o in registry.operators(all_versions=True).values() if o.module.startswith("opforge.ops")]
    return plan_library(own, name="every")


@pytest.fixture(scope="session")
def every():
    """All CUDA code of the package, compiled without a warning."""
    return build_cuda_library(every_plan(), architectures=ARCHITECTURES, extra=WERROR)


@TOGETHER
def test_all_kernels_compile_for_two_architectures_without_a_warning(every):
    library = load_library(every)
    assert library.architectures == ("sm_80", "sm_90", "compute_90")
    assert manifest(library)["architectures"] == ["sm_80", "sm_90", "compute_90"]
    formulas = {o.key for o in every_plan().operators if o.is_formula}
    assert formulas <= set(library.operators)
    for row in library.operators.values():
        assert row.kernels
        assert {kernel.device_type for kernel in row.kernels} == {abi.DEVICE_CUDA}


@TOGETHER
def test_only_the_table_is_exported_and_no_library_of_cuda_is_needed(every):
    exported = subprocess.run(["nm", "-D", "--defined-only", every], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in exported.splitlines()] == ["opforge_library_v1"]
    needed = subprocess.run(["ldd", every], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in needed
    assert "cuda" not in needed


@TOGETHER
@pytest.mark.skipif(not no_gpu_reason(), reason="here is a GPU")
def test_a_call_without_a_gpu_is_a_status_that_says_so(every):
    words = []

    def tell(context, code, text):
        words.append(text.decode())
        return code

    told = abi.Error(tell)
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    shape, counts = (ctypes.c_int64 * 1)(4), (ctypes.c_int32 * 1)(1)
    device = abi.Device(abi.DEVICE_CUDA, 0)

    def arguments(array):
        tensor = abi.Tensor(data=array.ctypes.data, device=device, ndim=1, dtype=abi.DType(2, 32, 1), shape=shape)
        return abi.Arguments((abi.Tensor * 1)(tensor), counts, 1, 1)

    context = abi.Context(size=ctypes.sizeof(abi.Context), abi=abi.ABI, device=device, error=told)
    kernel = load_library(every).operator(mish.key).kernel_for(F32, abi.DEVICE_CUDA)
    run = abi.KernelFunction(kernel.run)
    status = run(ctypes.byref(context), ctypes.byref(arguments(x)), ctypes.byref(arguments(y)), None)
    assert status == 3
    assert words[0].startswith(
        (
            "no GPU: there is no NVIDIA driver here: cudaErrorInsufficientDriver (35): ",
            "no GPU: cudaErrorNoDevice (100): ",
        )
    )
    shape[0] = 0  # nothing to do needs no GPU
    assert run(ctypes.byref(context), ctypes.byref(arguments(x)), ctypes.byref(arguments(y)), None) == 0
    assert len(words) == 1
    assert (y == 0).all()


def test_built_once(toolkit):
    plan = plan_library([narrow])
    path = build_cuda_library(plan, architectures=["sm_80"])
    built = path.stat()
    assert build_cuda_library(plan, architectures=["8.0"]) == path
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (built.st_ino, built.st_mtime_ns)
    assert build_cuda_library(plan, architectures=["sm_86"]) != path
    record = json.loads(path.with_suffix(".json").read_text())
    assert any(name.endswith("elementwise.cuh") for name in record["files"])
    assert not any(str(toolkit.root.resolve()) in name for name in record["files"])
    assert load_library(path).build.startswith(f"nvcc {toolkit.version}; ")


def test_hosts_get_it_when_a_tensor_on_the_device_comes():
    library = device_library(narrow)
    assert narrow.key in library.operators
    assert library.architectures[-1].startswith("compute_")


def test_an_architecture_that_nvcc_does_not_know():
    with pytest.raises(ArgumentError, match=r"no architecture that this compiler knows(?s:.*)sm_75(?s:.*)sm_35"):
        build_cuda_library(plan_library([gate]), architectures=["sm_35"])


def test_nvccs_words():
    with pytest.raises(BuildError, match=r"nvcc(?s:.*)--no-such-flag"):
        build_cuda_library(plan_library([gate]), architectures=["sm_80"], extra=["--no-such-flag"])


def test_a_users_formula_compiles_with_its_gradients():
    library = load_library(build_cuda_library(plan_library([gate]), architectures=["sm_90a"], extra=WERROR))
    assert library.architectures == ("sm_90a",)  # no other GPU could take its PTX
    assert len(library.operators) == 3
