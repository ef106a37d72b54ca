"""Small kernel operators in temporary folders, and a private cache for every test."""

from pathlib import Path

import pytest

import opforge as of

_OP = """import opforge as of

{function} = of.kernel(
    "test.build::{name}",
    "(x: T[n]; scale: float = 2.0) -> (y: T[n])",
    types={{"T": [of.f32]}},
    sources=["cpu.cc"],
    reference=lambda x, *, scale=2.0: x * scale,
    host_name="{function}",
)
"""

_CC = """#include "opforge/kernel.h"
#include "factor.h"

template <class T>
opforge::Status {function}(opforge::Context& context, opforge::View<const T, 1> x, double scale,
                           opforge::View<T, 1> y) {{
  if (scale < 0) return context.fail("scale is %g, expected scale >= 0", scale);
  for (int64_t i = 0; i < x.shape(0); ++i) y(i) = x(i) * static_cast<T>(scale) * kFactor;
  return opforge::kOk;
}}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give each test a cache of its own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPFORGE_CACHE", str(folder))
    monkeypatch.delenv("OPFORGE_JIT", raising=False)
    monkeypatch.delenv("OPFORGE_LIBRARY_PATH", raising=False)
    return folder


def write_scale(folder: Path, name: str, cc: str = _CC) -> Path:
    """Write the package of an operator that multiplies by an attribute and by a constant in a header."""
    folder.mkdir(parents=True, exist_ok=True)
    function = name.lower()
    (folder / "op.py").write_text(_OP.format(name=name, function=function))
    (folder / "cpu.cc").write_text(cc.format(function=function) if cc is _CC else cc)
    (folder / "factor.h").write_text("constexpr float kFactor = 1.0f;\n")
    return folder


@pytest.fixture
def scale(tmp_path):
    """Return a function that declares such an operator under a name of its own."""

    def declare(name: str, **options: str):
        return of.load(write_scale(tmp_path / name, name, **options))[0]

    return declare
