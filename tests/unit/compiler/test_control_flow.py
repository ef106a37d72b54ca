"""If, Loop and Scan: captures, nesting, what is fused and packed inside, zero iterations, models that are wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import opforge as of
from opforge import ops
from opforge.bin.program import Program
from opforge.bin.session import Session
from opforge.errors import ArgumentError
from opforge.verify import find_engine
from tests.unit.compiler.graphs import compiled, parsed, run

F32 = np.float32
RNG = np.random.default_rng(3)

NESTED = """
<ir_version: 10, opset_import: ["": 21]>
g (float[N,4] x, int64 m) => (float[N,4] y, float[K,N,4] rows, int64 n)
<float[4,4] w = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,0.11,0.12,0.13,0.14,0.15,0.16}> {
  scale = Constant <value_float = 0.5> ()
  x2 = Mul(x, scale)
  always = Constant <value = bool {1}> ()
  y, n, rows = Loop (m, always, x2, m) <body = body
    (int64 i, bool ci, float[N,4] a, int64 count) => (bool go, float[N,4] ao, int64 counted, float[N,4] row)
    <float[4] bias = {0.1, 0.2, 0.3, 0.4}> {
      t = MatMul(a, w)
      t2 = Add(t, bias)
      h = Constant <value_float = 1.41421356> ()
      e0 = Div(t2, h)
      e1 = Erf(e0)
      one = Constant <value_float = 1.0> ()
      e2 = Add(e1, one)
      e3 = Mul(t2, e2)
      half = Constant <value_float = 0.5> ()
      row = Mul(e3, half)
      two = Constant <value_int = 2> ()
      r = Mod(i, two)
      zero = Constant <value_int = 0> ()
      even = Equal(r, zero)
      ao = If (even) <
        then_branch = yes () => (float[N,4] o) { o = Add(row, x2) },
        else_branch = no () => (float[N,4] o2) {
          three = Constant <value_int = 3> ()
          o2 = Loop (three, always, row) <body = inner
            (int64 j, bool cj, float[N,4] b) => (bool cjo, float[N,4] bo) {
              cjo = Identity(cj)
              jf = Cast <to = 1> (j)
              sf = Cast <to = 1> (i)
              q = Mul(b, jf)
              q2 = Add(q, sf)
              q3 = Add(q2, x)
              bo = Mul(q3, scale)
          }>
        }>
      onei = Constant <value_int = 1> ()
      counted = Add(count, onei)
      last = Constant <value_int = 9> ()
      go = Less(i, last)
  }>
}
"""


def body_ops(program: Program, k: int = 1) -> list[str]:
    return [node.op for node in program.graphs[k].nodes]


@pytest.mark.parametrize("trips", [0, 1, 4, 30])
def test_loop_in_if_in_loop_with_captures(trips: int, tmp_path: Path) -> None:
    model = parsed(NESTED)
    feeds = {"x": RNG.standard_normal((3, 4)).astype(F32), "m": np.array(trips)}
    got = run(model, feeds, tmp_path)
    done = min(trips, 10)
    assert got["rows"].shape == (done, 3, 4)
    assert got["n"] == trips + done
    if trips == 0:
        np.testing.assert_array_equal(got["y"], feeds["x"] / 2)
        return
    y, rows, n = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(got["y"], y, rtol=1e-5, atol=1e-6)
    # onnx's reference joins the rows of 2-D scan outputs instead of stacking them
    np.testing.assert_allclose(got["rows"], np.reshape(rows, (done, 3, 4)), rtol=1e-5, atol=1e-6)
    assert n == got["n"]


def test_a_body_is_fused_and_packed_like_the_main_graph() -> None:
    program, report = compiled(parsed(NESTED))
    assert report.fused["MatMul + Gelu"] == 1
    assert report.algorithms == {"matmul": 1}
    body = program.graphs[1]
    assert body.nodes[0].op == "MatMul"
    assert program.values[body.nodes[0].inputs[1]].packing == "matmul16"
    assert body.captures
    assert all(program.values[k].data is None for g in program.graphs for k in g.captures)


def test_convolutions_inside_and_around_a_branch(tmp_path: Path) -> None:
    """A captured value that lies in blocks is given to the branch as a plain tensor."""
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[1,3,8,8] x, bool c) => (float[1,16,8,8] y) {
      a = Conv <pads = [1,1,1,1]> (x, w1)
      b = Relu(a)
      y = If (c) <
        then_branch = t () => (float[1,16,8,8] p) { q = Conv <pads = [1,1,1,1]> (b, w2)
                                                    r = Relu(q)
                                                    p = Add(r, b) },
        else_branch = e () => (float[1,16,8,8] s) { s = Identity(b) }>
    }
    """
    model = parsed(text)
    for name, shape in (("w1", (16, 3, 3, 3)), ("w2", (16, 16, 3, 3))):
        data = RNG.standard_normal(shape).astype(F32) * 0.1
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    program, _ = compiled(model)
    assert [n.op for g in program.graphs for n in g.nodes].count("Conv") == 2
    x = RNG.standard_normal((1, 3, 8, 8)).astype(F32)
    for flag in (True, False):
        feeds = {"x": x, "c": np.array(flag)}
        expected = ReferenceEvaluator(model).run(None, feeds)[0]
        np.testing.assert_allclose(run(model, feeds, tmp_path)["y"], expected, rtol=1e-4, atol=1e-4)


def test_branches_may_give_outer_values_inputs_and_constants(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[2] x, bool c) => (float[2] y, float[2] z, float[2] u) {
      x2 = Add(x, x)
      y, z = If (c) <
        then_branch = t () => (float[2] x2, float[2] k) <float[2] k = {7.0, 8.0}> { },
        else_branch = e () => (float[2] p, float[2] x) { p = Neg(x) }>
      count = Constant <value_int = 3> ()
      go = Constant <value = bool {1}> ()
      u, v = Loop (count, go, x, y) <body = b
        (int64 i, bool ci, float[2] s, float[2] t) => (bool ci, float[2] t, float[2] s) { }>
    }
    """
    model = parsed(text)
    x = np.array([1, 2], F32)
    got = run(model, {"x": x, "c": np.array(True)}, tmp_path)
    np.testing.assert_array_equal(got["y"], 2 * x)
    np.testing.assert_array_equal(got["z"], [7, 8])
    np.testing.assert_array_equal(got["u"], 2 * x)  # after three swaps
    got = run(model, {"x": x, "c": np.array(False)}, tmp_path)
    np.testing.assert_array_equal(got["y"], -x)
    np.testing.assert_array_equal(got["z"], x)


def test_names_inside_hide_outer_ones(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[2] x, bool c) => (float[2] y, float[2] a) <float[2] k = {10.0, 20.0}> {
      a = Add(x, k)
      y = If (c) <
        then_branch = t () => (float[2] a) <float[2] k = {1.0, 2.0}> { b = Mul(x, k)
                                                                       a = Add(b, b) },
        else_branch = e () => (float[2] b) { b = Add(a, k) }>
    }
    """
    model = parsed(text)
    x = np.array([1, 2], F32)
    got = run(model, {"x": x, "c": np.array(True)}, tmp_path)
    np.testing.assert_array_equal(got["y"], 2 * x * [1, 2])
    np.testing.assert_array_equal(got["a"], np.add(x, [10, 20]))
    got = run(model, {"x": x, "c": np.array(False)}, tmp_path)
    np.testing.assert_array_equal(got["y"], np.add(x, [20, 40]))


def test_custom_operators_and_functions_inside_a_body(tmp_path: Path) -> None:
    of.load("opforge.ops.custom_gelu")
    text = """
    <ir_version: 10, opset_import: ["": 21, "com.example": 1, "own": 1]>
    g (float[3] x) => (float[3] y) {
      count = Constant <value_int = 2> ()
      go = Constant <value = bool {1}> ()
      y = Loop (count, go, x) <body = b (int64 i, bool ci, float[3] s) => (bool ci, float[3] r) {
        t = com.example.CustomGELU(s)
        r = own.Twice(t)
      }>
    }
    <domain: "own", opset_import: ["": 21]>
    Twice (a) => (b) {
      yes = Constant <value = bool {1}> ()
      b = If (yes) <then_branch = t () => (c) { c = Add(a, a) }, else_branch = e () => (a) { }>
    }
    """
    model = parsed(text)
    program, report = compiled(model)
    assert body_ops(program) == ["Formula"]  # the branch is known, and both operators became one formula
    assert "com.example::CustomGELU" in report.custom
    x = np.array([-1, 0.5, 2], F32)
    gelu = of.operators()["com.example::CustomGELU"]
    expected = x
    for _ in range(2):
        expected = 2 * np.asarray(gelu.reference(expected))
    np.testing.assert_allclose(run(model, {"x": x}, tmp_path)["y"], expected, rtol=1e-5)


def test_a_loop_with_a_condition_only_and_growing_values(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[1] x, float limit) => (float[K] y, int64 n) {
      go = Constant <value = bool {1}> ()
      zero = Constant <value_int = 0> ()
      y, n = Loop ("", go, x, zero) <body = b
        (int64 i, bool ci, float[1] s, int64 k) => (bool co, float[M] r, int64 k2) {
        axis = Constant <value_ints = [0]> ()
        r = Concat <axis = 0> (s, x)
        total = ReduceSum <keepdims = 0> (r, axis)
        co = Less(total, limit)
        one = Constant <value_int = 1> ()
        k2 = Add(k, one)
      }>
    }
    """
    model = parsed(text)
    program, _ = compiled(model)
    inside = program.values[program.graphs[1].inputs[2]]
    assert inside.shape == [None]  # declared as [1], but the body makes it longer
    got = run(model, {"x": np.array([1.5], F32), "limit": np.array(10, F32)}, tmp_path)
    np.testing.assert_array_equal(got["y"], np.full(7, 1.5))
    assert got["n"] == 6


def test_zero_iterations_give_the_known_shape(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[N,4] x, int64 m, bool c) => (float[K,N,4] rows, int64[K] index) {
      rows, index = Loop (m, c) <body = b (int64 i, bool ci) => (bool ci, float[N,4] r, int64 j) {
        r = Add(x, x)
        j = Identity(i)
      }>
    }
    """
    model = parsed(text)
    x = np.ones((3, 4), F32)
    for m, c in ((0, True), (-5, True), (7, False)):
        got = run(model, {"x": x, "m": np.array(m), "c": np.array(c)}, tmp_path)
        assert got["rows"].shape == (0, 3, 4)
        assert got["rows"].dtype == F32
        assert got["index"].shape == (0,)
        assert got["index"].dtype == np.int64
    got = run(model, {"x": x, "m": np.array(2), "c": np.array(True)}, tmp_path)
    np.testing.assert_array_equal(got["index"], [0, 1])


BRANCH = """
<ir_version: 10, opset_import: ["": 21]>
g (float[2] value, bool c) => (float[2] y) {{
  y = If (c) <then_branch = t () => (float[2] p) {{ p = Add(value, {name}) }},
              else_branch = e () => (float[2] {out}) {{ q = Neg(value) }}>
}}
"""


def test_an_unknown_name_inside_is_named() -> None:
    with pytest.raises(ArgumentError, match="reads a value that nothing gives") as caught:
        compiled(parsed(BRANCH.format(name="valu", out="q")))
    assert "got: 'valu'" in str(caught.value)
    assert "did you mean 'value'?" in str(caught.value)
    with pytest.raises(ArgumentError, match="reads a value that nothing gives") as caught:
        compiled(parsed(BRANCH.format(name="value", out="nowhere")))
    assert "got: 'nowhere'" in str(caught.value)


def test_wrong_numbers_of_inputs_and_outputs() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[2] x, bool c) => (float[2] y) {
      y = If (c) <then_branch = t () => (float[2] p, float[2] q) { p = Neg(x)
                                                                   q = Neg(p) },
                  else_branch = e () => (float[2] r) { r = Neg(x) }>
    }
    """
    with pytest.raises(ArgumentError, match="wrong number of outputs") as caught:
        compiled(parsed(text))
    assert "expected: 1\n  got: 2" in str(caught.value)


def test_simplify_and_raise_look_into_subgraphs() -> None:

    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[2] x, bool c, float[2] k) => (float[2] y) {
      t = Identity(x)
      y = If (c) <
        then_branch = a () => (float[2] p) { one = Constant <value_float = 2.0> ()
                                             two = Mul(one, one)
                                             s = Sigmoid(t)
                                             q = Mul(t, s)
                                             p = Mul(q, two) },
        else_branch = b () => (float[2] t) { }>
    }
    """
    model = parsed(text)
    simple = of.onnx.simplify(of.onnx.raise_formulas(model, [ops.swish]))
    onnx.checker.check_model(of.onnx.inline_functions(simple))
    inside = [n.op_type for a in simple.graph.node[0].attribute for n in a.g.node]
    assert inside == ["Swish", "Mul", "Identity"]
    feeds = {"x": np.array([1, -2], F32), "k": np.zeros(2, F32)}
    for flag in (True, False):
        expected = ReferenceEvaluator(model).run(None, {**feeds, "c": np.array(flag)})[0] if flag else feeds["x"]
        got = of.onnx.inline_functions(simple)
        np.testing.assert_allclose(
            ReferenceEvaluator(got).run(None, {**feeds, "c": np.array(flag)})[0], expected, rtol=1e-6
        )


def test_a_kernel_of_a_library_inside_a_body(tmp_path: Path) -> None:
    of.load("opforge.ops.sparse_matmul")
    text = """
    <ir_version: 10, opset_import: ["": 21, "com.example": 1]>
    g (float[K] v, int64[K] i, int64[M] p, float[4,3] d, int64 n) => (float[4,3] y) {
      go = Constant <value = bool {1}> ()
      y = Loop (n, go, d) <body = b (int64 k, bool ci, float[4,3] s) => (bool ci, float[4,3] r) {
        r = com.example.SparseMatMul(v, i, p, s)
      }>
    }
    """
    path = tmp_path / "model.onnx"
    onnx.save(parsed(text), path)
    a = np.array([[0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 3], [0, 0, 0.5, 0]], F32)
    d = RNG.standard_normal((4, 3)).astype(F32)
    feeds = {"v": a[a != 0], "i": np.nonzero(a)[1], "p": np.arange(5), "d": d, "n": np.array(3)}
    got = find_engine("opforge").load(path).run(feeds)["y"]
    np.testing.assert_allclose(got, a @ a @ a @ d, rtol=1e-5)


def test_runs_at_one_time_share_nothing(tmp_path: Path) -> None:
    of.compile(parsed(NESTED), tmp_path / "model.bin")
    session = Session(tmp_path / "model.bin", threads=1)
    feeds = [{"x": RNG.standard_normal((k % 3 + 1, 4)).astype(F32), "m": np.array(k % 5)} for k in range(16)]
    expected = [session.run(f) for f in feeds]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            for got, want in zip(threads.map(session.run, feeds), expected, strict=True):
                for name, value in want.items():
                    np.testing.assert_array_equal(got[name], value)
