"""A kernel operator that ends its process, and programs that check it."""

import os
import subprocess
import sys
from pathlib import Path

import opforge as of
from tests.notices import without_notices

FAR = "*(&y(0) + (int64_t{1} << 44)) = x(0);"  # no process has memory there
ABORT = 'std::fputs("the kernel gives up\\n", stderr); std::abort();'
HANG = "for (volatile int64_t k = 0; k < (int64_t{1} << 60); ++k) {}"
DECLARATION = """
import opforge as of

wild = of.kernel(
    "local.crash::Wild",
    "(x: T[n]) -> (y: T[n])",
    types={"T": (of.f32,)},
    sources=["cpu.cc"],
    reference=lambda x: same(x),
    differentiable=False,
)


def same(x):
    return x
"""
_KERNEL = """
#include <cstdio>
#include <cstdlib>
#include "opforge/kernel.h"

template <class T>
opforge::Status wild(opforge::Context&, opforge::View<const T, 1> x, opforge::View<T, 1> y) {
  if (x.shape(0) == 5) { %s }
  for (int64_t i = 0; i < x.shape(0); ++i) y(i) = x(i);
  return opforge::kOk;
}
"""
_CASES = """CASES = [
    {"name": "good", "inputs": {"x": {"shape": [3], "normal": 1.0}}},
    {"name": "few", "inputs": {"x": {"shape": [5], "normal": 1.0}}},
]
"""


def write(folder, fault=FAR, declaration=DECLARATION, file="op.py"):
    """Write the operator; its kernel has the fault at five elements."""
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(declaration)
    (folder / "cpu.cc").write_text(_KERNEL % fault)
    (folder / "cases.py").write_text(_CASES)
    return folder


def start(folder, *words, **options):
    """Start Python as a user does, with what it says in pipes."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPFORGE_JIT": "auto", "PYTHONPATH": str(Path(of.__file__).parents[1])},
        **options,
    )


def run(folder, *words):
    """Run Python to its end: exit code, standard output, standard error but for notices of builds."""
    process = start(folder, *words)
    out, err = process.communicate(timeout=900)
    return process.returncode, out, without_notices(err)
