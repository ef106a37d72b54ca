"""Loops that are long or deep: memory, the time of the compiler."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import opforge as of
from opforge.bin.session import Session
from opforge.errors import UnsupportedError
from opforge.passes import _control_shapes, close_subgraphs
from tests.unit.compiler.graphs import parsed, run

F32 = np.float32
RNG = np.random.default_rng(3)


LONG = """
<ir_version: 10, opset_import: ["": 21]>
g (float[256] x, int64 m) => (float[256] y) {
  go = Constant <value = bool {1}> ()
  y = Loop (m, go, x) <body = b (int64 i, bool ci, float[256] s) => (bool ci, float[256] r) {
    t = Mul(s, x)
    u = Softmax(t)
    r = Add(u, x)
  }>
}
"""


def test_a_long_loop_does_not_grow(tmp_path: Path) -> None:
    of.compile(parsed(LONG), tmp_path / "model.bin")
    session = Session(tmp_path / "model.bin", threads=1)
    x = np.full(256, 0.5, F32)
    session.run({"x": x, "m": np.array(100)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    session.run({"x": x, "m": np.array(100_000)})
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 << 10  # KiB; one value each time would be 100 MB


def test_many_levels_of_loops_compile_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level changes a shape, so that the search for what stays the same begins anew at each."""
    searches, search = [], _control_shapes._carried

    def counted(*arguments: Any) -> Any:
        searches.append(None)
        assert len(searches) < 4000, "some 350 of them; two at each level for each one above would be a million"
        return search(*arguments)

    monkeypatch.setattr(_control_shapes, "_carried", counted)
    inner = "r = Concat <axis = 0> (s, x)"
    for k in range(20):
        body = f"t{k} = Identity(s) {inner}" if k else inner
        inner = (
            f"r = Loop (one, yes, s) <body = b{k} (int64 i, bool go, float[N] s) => (bool go, float[N] r) {{ {body} }}>"
        )
    text = f"""
    <ir_version: 10, opset_import: ["": 21]>
    g (float[1] x, float[1] s) => (float[M] r) {{
      one = Constant <value_int = 1> ()
      yes = Constant <value = bool {{1}}> ()
      {inner}
    }}
    """
    x = np.ones(1, F32)
    got = run(parsed(text), {"x": x, "s": x}, tmp_path)
    assert searches
    np.testing.assert_array_equal(got["r"], [1, 1])


def test_deep_nesting_is_refused() -> None:
    """Protobuf cannot hold so many levels, a model made in memory can."""
    condition = ir.Value(name="c", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    held: list[ir.Graph] = []
    for depth in range(80):
        branches = [ir.AttrGraph(name, held[-1]) for name in ("then_branch",) if held]
        node = ir.Node("", "If" if held else "Not", [condition], branches, num_outputs=1)
        node.outputs[0].name = f"y{depth}"
        held.append(ir.Graph([condition] if depth == 79 else [], node.outputs, nodes=[node], name=f"g{depth}"))
    model = ir.Model(held[-1], ir_version=10)
    with pytest.raises(UnsupportedError, match="nested too deep") as caught:
        close_subgraphs.call(model)
    assert "at most 64 levels" in str(caught.value)
