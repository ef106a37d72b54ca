"""The kernel ABI from plain C: a hand-written library and a hand-written host, both compiled as C11."""

import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest

from opforge.build import load_library
from opforge.build.invoke import invoke
from opforge.schema import DType

ROOT = Path(__file__).parents[3]
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{ROOT / 'include'}"]


def build_library(path, *flags):
    shared = ["-fPIC", "-shared", str(ROOT / "tests" / "data" / "handwritten_library.c"), "-o", str(path), "-lm"]
    subprocess.run(["cc", *FLAGS, *flags, *shared], check=True)


@pytest.mark.compiler
@pytest.mark.parametrize("sanitizer", [[], ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]])
def test_a_host_in_c_runs_a_library_in_c(tmp_path, sanitizer):
    library, host = tmp_path / "libhandwritten.so", tmp_path / "host"
    data = ROOT / "tests" / "data"
    build_library(library, *sanitizer)
    program = [str(data / "plain_c_host.c"), "-o", str(host), "-lm", "-ldl"]
    subprocess.run(["cc", *FLAGS, *sanitizer, *program], check=True)
    done = subprocess.run(
        [str(host), str(library)], capture_output=True, text=True, check=False, env={"ASAN_OPTIONS": "detect_leaks=0"}
    )
    assert (done.returncode, done.stdout) == (0, "all right\n"), done.stdout + done.stderr


@pytest.mark.compiler
def test_numpy_gives_addresses_that_a_kernel_asks_for(tmp_path):
    build_library(tmp_path / "libhandwritten.so")
    (kernel,) = load_library(tmp_path / "libhandwritten.so").operators["test.hand::Paged:1"].kernels
    x = np.arange(1001, dtype=np.float32)
    (y,) = invoke(kernel, [[x[1:]]], [[((1000,), DType.parse("f32"))]], [], "Paged")
    np.testing.assert_array_equal(y, 2 * x[1:])


@pytest.mark.compiler
def test_numpy_gives_them_to_outputs_that_the_kernel_allocates(tmp_path):
    build_library(tmp_path / "libhandwritten.so")
    kernel = load_library(tmp_path / "libhandwritten.so").operators["test.hand::Nonzero:1"].kernels[0]
    x = np.array([0, 3, 0, 2], np.float32)
    for alignment in (0, 4096):
        for _ in range(3 if alignment else 1):
            (y,) = invoke(
                dataclasses.replace(kernel, alignment=alignment), [[x]], [[(None, DType.parse("i64"))]], [], "Nonzero"
            )
            np.testing.assert_array_equal(y, [1, 3])
            assert y.__array_interface__["data"][0] % max(alignment, 8) == 0
