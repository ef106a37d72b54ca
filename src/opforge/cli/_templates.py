"""The files that ``opforge new`` writes: a formula operator, a kernel operator, an installable package."""

from __future__ import annotations

from string import Template

__all__ = ["KERNEL", "FORMULA", "PACKAGE", "render"]

_FORMULA_OP = '''"""$name: describe what it computes and where the formula comes from."""

import opforge as of


@of.formula("$domain::$name")
def $function(x, *, scale: float = 1.0):
    """A sigmoid-gated linear unit, x * sigmoid(scale * x). Replace it with your formula.

    Parameters before the star are tensors (they broadcast like NumPy arrays); those after it are attributes.
    """
    return x * of.sigmoid(scale * x)
'''

_FORMULA_CASES = '''"""Inputs that every check of $name runs on; tolerances state their reason."""

CASES = [
    {"name": "vector", "inputs": {"x": {"shape": [16], "low": -6.0, "high": 6.0}}},
    {"name": "matrix", "inputs": {"x": {"shape": [5, 33], "low": -6.0, "high": 6.0}}, "attributes": {"scale": 0.5}},
]
'''

_KERNEL_OP = '''"""$name: describe what it computes and where the algorithm comes from."""

import numpy as np

import opforge as of


def _reference(x, w, *, bias=0.0):
    """What is right, in float64: the rows of x weighted by w, plus a bias."""
    return np.asarray(x, np.float64) * np.asarray(w, np.float64)[:, None] + bias


$function = of.kernel(
    "$domain::$name",
    "(x: T[m, n], w: T[m]; bias: float = 0.0) -> (y: T[m, n])",
    types={"T": of.floating},
    sources=["cpu.cc"],
    reference=_reference,
    differentiable=False,  # or gradient=..., see the documentation of of.kernel
)
'''

_KERNEL_CC = """// cpu.cc: the CPU kernel of $name. One template serves every dtype that op.py declares.
#include "opforge/kernel.h"

using opforge::Context;
using opforge::Status;
using opforge::View;

template <class T>
Status $function(Context& context, View<const T, 2> x, View<const T, 1> w, double bias, View<T, 2> y) {
  const int64_t columns = x.shape(1);
  context.parallel_for(x.shape(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        y(row, column) = T(float(x(row, column)) * float(w(row)) + float(bias));
      }
    }
  });
  return Status::ok();
}
"""

_KERNEL_CASES = '''"""Inputs that every check of $name runs on; tolerances state their reason."""

CASES = [
    {
        "name": "small",
        "inputs": {"x": {"shape": [4, 7], "low": -2.0, "high": 2.0}, "w": {"shape": [4], "low": -1.0, "high": 1.0}},
        "attributes": {"bias": 0.25},
    },
]
'''

_README = """# $name

An opforge operator in the domain `$domain`.

```
opforge check .                      # schema, gradients, parity, boundary inputs
opforge export .:$name -o $function.onnx
opforge compile $function.onnx --package . -o $function.bin
opforge run $function.bin --random
```
"""

_PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "0.1.0"
description = "The opforge operator $name"
requires-python = ">=3.11"
dependencies = ["opforge>=$version"]

[project.entry-points."opforge.operators"]
$package = "$package"

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
"*" = ["*.cc", "*.cu", "*.h", "*.json", "_lib/*", "README.md"]
"""

_PACKAGE_INIT = '''"""The operators of $package; opforge finds them through the entry point in pyproject.toml."""

from $package.$function.op import $function

__all__ = ["$function"]
'''

_PACKAGE_README = """# $distribution

An installable package with the operator `$domain::$name`.

```
pip install .
opforge check $package
opforge build $package --wheel       # a wheel with the compiled kernel library inside
```
"""

FORMULA = {"op.py": _FORMULA_OP, "cases.py": _FORMULA_CASES, "README.md": _README}
KERNEL = {"op.py": _KERNEL_OP, "cpu.cc": _KERNEL_CC, "cases.py": _KERNEL_CASES, "README.md": _README}
PACKAGE = {"pyproject.toml": _PYPROJECT, "README.md": _PACKAGE_README, "src/$package/__init__.py": _PACKAGE_INIT}


def render(files: dict[str, str], **values: str) -> dict[str, str]:
    """Fill the names into paths and texts."""
    return {Template(path).substitute(values): Template(text).substitute(values) for path, text in files.items()}
