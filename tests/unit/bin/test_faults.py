"""Kernels of a library that crash in a session, or do not return: words on standard error, and the signal's own end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import parser, save

import opforge as of
from opforge._paths import library_dir
from opforge.bin.libraries import libraries_of
from opforge.errors import EngineCrash
from opforge.verify._runs import trial
from tests.notices import without_notices
from tests.unit.verify.faulty import forget

pytestmark = pytest.mark.compiler

_OP = """
import ctypes

import opforge as of


def same(x):
    if x.size == 9:
        ctypes.string_at(16)
    return x


wild = of.kernel(
    "local.faults::Wild",
    "(x: T[n]) -> (y: T[n])",
    types={"T": (of.f32,)},
    sources=["cpu.cc"],
    reference=same,
    differentiable=False,
)
"""
_KERNEL = """
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include "opforge/kernel.h"

template <class T>
opforge::Status wild(opforge::Context& context, opforge::View<const T, 1> x, opforge::View<T, 1> y) {
  const int64_t n = x.shape(0);
  if (n == 5) *reinterpret_cast<volatile int*>(16) = 1;
  if (n == 6) std::abort();
  if (n == 7) {
    std::fclose(std::fopen(std::getenv("CALLED"), "w"));
    for (;;) ::pause();
  }
  context.parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (n == 64 && i == 63) *reinterpret_cast<volatile int*>(16) = 1;
      y(i) = x(i);
    }
  });
  return opforge::kOk;
}
"""
_MODEL = """<ir_version: 9, opset_import: ["" : 20, "local.faults" : 1]>
graph (float[N] x) => (float[N] y) { y = local.faults.Wild(x) }"""
_CRASHED = "error: local.faults::Wild (output 'y'): the kernel ends the process\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with op/, model.bin and, as a text, the library of the kernel."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "op").mkdir()
    (folder / "op" / "op.py").write_text(_OP)
    (folder / "op" / "cpu.cc").write_text(_KERNEL)
    (folder / "op" / "cases.py").write_text('CASES = [{"name": "few", "inputs": {"x": {"shape": [3]}}}]\n')
    save(parser.parse_model(_MODEL), folder / "model.onnx")
    operators = of.load(folder / "op")
    of.compile(folder / "model.onnx", folder / "model.bin")
    (library,) = libraries_of(folder / "model.bin")
    (folder / "library").write_text(str(library))
    yield folder
    for operator in operators:
        forget(operator)


def _start(place, *words, **variables):
    return subprocess.Popen(
        [*map(str, words)],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(of.__file__).parents[1]), **variables},
    )


def _end(process):
    out, err = process.communicate(timeout=900)
    return process.returncode, out, without_notices(err)


def _run(place, n, *words, model="model.bin", **variables):
    return _start(
        place, sys.executable, "-m", "opforge", "run", model, "--random", "--size", f"N={n}", "--package", "op",
        *words, **variables,
    )  # fmt: skip


def test_a_kernel_that_writes_far_away_is_told_and_the_file_from_before_stays(place, tmp_path):
    np.savez(tmp_path / "out.npz", y=np.ones(2))
    before = (tmp_path / "out.npz").read_bytes()
    code, out, err = _end(_run(place, 5, "--output", tmp_path / "out.npz"))
    assert (code, out) == (-signal.SIGSEGV, "")
    library = (place / "library").read_text()
    assert err.startswith(_CRASHED)
    assert "  expected: a kernel that stays inside its tensors, and throws nothing\n" in err
    assert f"  got: SIGSEGV at address 0x10 in the kernel of {library}\n" in err
    assert "  to do: opforge check PACKAGE:Wild --sanitize address names the line\n" in err
    assert err.endswith("  inputs: f32[5]\n  outputs: f32[5]\n")
    assert (tmp_path / "out.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"], "nothing half written is left"


def test_the_program_without_python_tells_it_too(place):
    library = (place / "library").read_text()
    run = library_dir() / "opforge-run"
    code, out, err = _end(_start(place, run, "model.bin", "--shape", "x=6", "--library", library))
    assert (code, out) == (-signal.SIGABRT, "")
    assert err.startswith(_CRASHED) and f"  got: SIGABRT in the kernel of {library}\n" in err
    code, _, err = _end(_start(place, run, "model.bin", "--shape", "x=3", "--library", library))
    assert (code, err) == (0, "")


def test_a_thread_that_helps_the_kernel_is_in_it(place):
    code, _, err = _end(_run(place, 64, OPFORGE_NUM_THREADS="2"))
    assert code == -signal.SIGSEGV
    assert err.startswith(_CRASHED) and err.endswith("  inputs: f32[64]\n  outputs: f32[64]\n")


def test_a_second_interrupt_ends_a_kernel_that_does_not_return(place, tmp_path):
    called = tmp_path / "called"
    process = _run(place, 7, CALLED=str(called))
    while not called.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    code, out, err = _end(process)
    assert (code, out) == (130, "")
    assert err == (
        "error: local.faults::Wild (output 'y'): interrupted, and the kernel does not return\n  inputs: f32[7]\n"
    )


def test_what_another_engine_ends_is_told_as_that(place):
    code, out, err = _end(_run(place, 9, "--engine", "reference", model="model.onnx"))
    assert (code, out) == (-signal.SIGSEGV, "")
    assert err == "error: reference runs model.onnx: the process ends by it\n  got: SIGSEGV at address 0x10\n"


def test_a_command_that_tries_every_engine_leaves_out_what_crashes(place):
    with pytest.raises(
        EngineCrash, match=r"(?s)opforge: crashed, signal 11 .SIGSEGV.*local.faults::Wild.*to do: "
    ) as it:
        trial("opforge", place / "model.bin", {"x": np.ones(5, np.float32)}, 1, (), tried=True)
    assert it.value.hint is not None and it.value.hint.endswith("op/op.py --sanitize address names the line")


_SCRIPT = """
import faulthandler, os, sys
import numpy as np
import opforge as of

of.load("op")
session = of.Session("model.bin")
print(session.run({"x": np.ones(3, np.float32)}).keys(), flush=True)
faulthandler.disable()
"""


def test_a_program_of_the_users_own_is_asked_by_a_variable(place):
    crash = f"{_SCRIPT}session.run({{'x': np.ones(5, np.float32)}})"
    code, _, err = _end(_start(place, sys.executable, "-c", crash))
    assert (code, err) == (-signal.SIGSEGV, ""), "the library has no handlers unless it is asked"
    code, _, err = _end(_start(place, sys.executable, "-c", crash, OPFORGE_REPORT_FAULTS="1"))
    assert code == -signal.SIGSEGV and err.startswith(_CRASHED)
    code, _, err = _end(
        _start(place, sys.executable, "-X", "faulthandler", "-c", crash.replace("faulthandler.disable()", ""),
               OPFORGE_REPORT_FAULTS="1")
    )  # fmt: skip
    assert code == -signal.SIGSEGV and err.startswith(_CRASHED)
    assert "Fatal Python error: Segmentation fault" in err, "who had a handler before still has it"


def test_what_ends_after_a_kernel_has_run_is_told_as_that(place):
    code, _, err = _end(_start(place, sys.executable, "-c", f"{_SCRIPT}os.abort()", OPFORGE_REPORT_FAULTS="1"))
    assert code == -signal.SIGABRT
    words = "error: local.faults::Wild: the process ends after its kernel has run, perhaps by memory that it spoilt\n"
    assert err.startswith(words)
    assert "  got: SIGABRT in the kernel of " in err and ", or in what ran after it\n" in err
    sent = f"{_SCRIPT}import signal, subprocess\nsubprocess.run(['sh', '-c', f'kill -ABRT {{os.getpid()}}'])"
    code, _, err = _end(_start(place, sys.executable, "-c", sent, OPFORGE_REPORT_FAULTS="1"))
    assert (code, err) == (-signal.SIGABRT, ""), "a signal of others is no kernel's"
