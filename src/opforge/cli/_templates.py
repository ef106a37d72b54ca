"""The files that ``opforge new`` writes: a formula operator, a kernel operator, an installable package."""

from __future__ import annotations

from string import Template

__all__ = ["FORMULA", "KERNEL", "PACKAGE", "render"]

_FORMULA_OP = '''"""$name: describe what it computes and where the formula comes from."""

import opforge as of


@of.formula("$domain::$name")
def $function(x, *, scale: float = 1.0):
    """A sigmoid-gated linear unit, x * sigmoid(scale * x). Replace it with your formula.

    Parameters before the star are tensors, which broadcast as in NumPy; those after it are attributes. Write with
    of.exp, of.tanh, of.where, ... and Python's operators. Gradients are derived from the formula.
    """
    return x * of.sigmoid(scale * x)
'''

_FORMULA_CASES = '''"""Inputs that `opforge check` and every host test $name with.

Where the defaults are too strict or too loose, say what holds and why:
TOLERANCES = {"f32": (1e-5, 1e-6, "cancellation near x = 1")}       # dtype: relative, absolute, reason
"""

CASES = [
    {"name": "vector", "inputs": {"x": {"shape": [16], "low": -6.0, "high": 6.0}}},
    {"name": "matrix", "inputs": {"x": {"shape": [5, 33], "normal": 3.0}}, "attributes": {"scale": 0.5}},
    {"name": "special", "inputs": {"x": {"values": ["nan", "inf", "-inf", 0.0, -0.0]}}},
]
'''

_KERNEL_OP = '''"""$name: describe what it computes and where the algorithm comes from."""

import numpy as np

import opforge as of

TYPES = {"T": of.floating}


def _reference(x, w, *, scale):
    """What is right, in float64: row i of x times w[i]."""
    return scale * x * w[:, None]


def _gradient(inputs, outputs, grads, attrs):
    """The gradients as calls of operators; each has the shape of its input."""
    return {
        "x": $function(grads.y, inputs.w, scale=attrs.scale),
        "w": $function_w(inputs.x, grads.y, scale=attrs.scale),
    }


$function = of.kernel(
    "$domain::$name",
    "(x: T[m, n], w: T[m]; scale: float = 1.0) -> (y: T[m, n])",
    types=TYPES,
    sources=["cpu.cc"],
    reference=_reference,
    gradient=_gradient,  # or differentiable=False: then a backward pass raises
)


def _reference_w(x, g, *, scale):
    """The gradient by w: each row of x times the same row of g, summed."""
    return scale * np.sum(x * g, axis=1)


def _gradient_w(inputs, outputs, grads, attrs):
    """Gradients have gradients: second derivatives need them."""
    return {
        "x": $function(inputs.g, grads.w, scale=attrs.scale),
        "g": $function(inputs.x, grads.w, scale=attrs.scale),
    }


$function_w = of.kernel(
    "$domain::$name_w",
    "(x: T[m, n], g: T[m, n]; scale: float = 1.0) -> (w: T[m])",
    types=TYPES,
    sources=["cpu.cc"],
    reference=_reference_w,
    gradient=_gradient_w,
)
'''

_KERNEL_CC = """// cpu.cc: the CPU kernels of $name. One template serves every dtype that op.py declares.
#include "opforge/kernel.h"

using opforge::compute_t;  // float for f16 and bf16, else T itself
using opforge::Context;
using opforge::Status;
using opforge::View;

template <class T>
Status $function(Context& context, View<const T, 2> x, View<const T, 1> w, double scale, View<T, 2> y) {
  using R = compute_t<T>;
  const int64_t columns = x.shape(1);
  context.parallel_for(x.shape(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const R factor = static_cast<R>(scale) * static_cast<R>(w(row));
      for (int64_t column = 0; column < columns; ++column) {
        y(row, column) = static_cast<T>(static_cast<R>(x(row, column)) * factor);
      }
    }
  });
  return opforge::kOk;
}

template <class T>
Status $function_w(Context& context, View<const T, 2> x, View<const T, 2> g, double scale, View<T, 1> w) {
  using R = compute_t<T>;
  const int64_t columns = x.shape(1);
  context.parallel_for(x.shape(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      R sum = 0;
      for (int64_t column = 0; column < columns; ++column) {
        sum += static_cast<R>(x(row, column)) * static_cast<R>(g(row, column));
      }
      w(row) = static_cast<T>(static_cast<R>(scale) * sum);
    }
  });
  return opforge::kOk;
}
"""

_KERNEL_CASES = '''"""Inputs that `opforge check` and every host test the operators with; plain data."""

_ROWS = [("small", 4, 7), ("tall", 33, 2), ("no rows", 0, 5), ("no columns", 3, 0)]

CASES = {
    "$name": [
        {
            "name": name,
            "inputs": {"x": {"shape": [m, n], "normal": 1.0}, "w": {"shape": [m], "low": -1.0, "high": 1.0}},
            "attributes": {"scale": 0.5},
        }
        for name, m, n in _ROWS
    ],
    "$name_w": [
        {"name": name, "inputs": {"x": {"shape": [m, n], "normal": 1.0}, "g": {"shape": [m, n], "normal": 1.0}}}
        for name, m, n in _ROWS
    ],
}

# What holds, and why; without an entry the defaults of opforge hold.
TOLERANCES = {"f32": (1e-5, 1e-6, "sums of at most 7 products, cancellation against values of size 1")}
'''

_README = """# $name

An opforge operator in the domain `$domain`.

```
opforge check $folder
opforge export $folder:$name -o $function.onnx
opforge compile $function.onnx -o $function.bin --package $folder
opforge run $function.bin --random
opforge compare $function.onnx --package $folder
```

In Python:

```python
import numpy as np
import opforge as of

$function = of.load("$folder:$name")[0]
$function($call)     # also with torch tensors
```
"""

_PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "0.1.0"
description = "The opforge operator $name"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["opforge>=$version"]

# By this opforge finds the operators of an installed package.
[project.entry-points."opforge.operators"]
$package = "$package"

[tool.setuptools.packages.find]
where = ["src"]

[tool.setuptools.package-data]
"*" = ["*.cc", "*.cu", "*.h", "*.hh", "*.hpp", "*.cuh", "*.inc", "_lib/*", "README.md"]
"""

_PACKAGE_INIT = '''"""The operators of $package; opforge finds them through the entry point in pyproject.toml."""

from $package.$function.op import $function

__all__ = ["$function"]
'''

_PACKAGE_README = """# $distribution

An installable package with the operator `$domain::$name`.

```
opforge check $folder
opforge build $folder --wheel
pip install dist/*.whl
opforge check $package
```

The wheel holds the compiled kernel library. Once it is installed, opforge finds the operator without `--package`.

In Python:

```python
import numpy as np
from $package import $function

$function($call)     # also with torch tensors
```
"""

FORMULA = {"op.py": _FORMULA_OP, "cases.py": _FORMULA_CASES, "README.md": _README}
KERNEL = {"op.py": _KERNEL_OP, "cpu.cc": _KERNEL_CC, "cases.py": _KERNEL_CASES, "README.md": _README}
PACKAGE = {"pyproject.toml": _PYPROJECT, "README.md": _PACKAGE_README, "src/$package/__init__.py": _PACKAGE_INIT}


def render(files: dict[str, str], **values: str) -> dict[str, str]:
    """Fill the names into paths and texts; every name in them must be among ``values``."""
    return {Template(path).substitute(values): Template(text).substitute(values) for path, text in files.items()}
