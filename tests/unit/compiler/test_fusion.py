"""What is fused, what is not, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.graphs import chain, compiled, model, node, ops, same

RNG = np.random.default_rng(5)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _attribute(program, op, name):
    return next(n for n in program.graphs[0].nodes if n.op == op).attributes.get(name)


W, B = _random(24, 40), _random(40)


def test_chain_is_one_formula():
    nodes = chain("a = Mul x x; b = Add a z; c = Tanh b; y = Sub c x")
    program, report = same(model(nodes, {"x": ["N", 8], "z": ["N", 8]}), {"x": _random(3, 8), "z": _random(3, 8)})
    assert ops(program) == ["Formula"]
    assert report.fused == {"Mul + Add + Tanh + Sub": 1}


def test_value_that_others_read_ends_a_formula():
    nodes = chain("a = Exp x; b = Neg a; c = Softmax a; y = Add b c")
    program, _ = same(model(nodes, {"x": [3, 8]}), {"x": _random(3, 8)})
    assert ops(program) == ["Formula", "Softmax", "Formula"]


def test_output_that_is_read_inside_stays_an_output():
    nodes = chain("a = Exp x; y = Neg a")
    program, _ = same(model(nodes, {"x": [3, 8]}, outputs="y a"), {"x": _random(3, 8)})
    assert ops(program) == ["Formula", "Formula"]


def test_small_operand_is_not_computed_again_for_each_row():
    nodes = chain("e = Exp s; y = Mul x e")
    program, _ = same(model(nodes, {"x": [64, 8], "s": [8]}), {"x": _random(64, 8), "s": _random(8)})
    assert ops(program) == ["Formula", "Formula"]


def test_matmul_takes_bias_activation_and_epilogue():
    nodes = chain("m = MatMul x w; h = Add m b; g = Gelu h; y = Add g r")
    proto = model(nodes, {"x": ["N", 5, 24], "r": ["N", 5, 40]}, {"w": W, "b": B})
    program, report = same(proto, {"x": _random(2, 5, 24), "r": _random(2, 5, 40)}, atol=1e-5)
    assert ops(program) == ["MatMul"]
    assert report.fused == {"MatMul + Gelu + Add": 1}
    assert len(program.graphs[0].nodes[0].inputs) == 4


@pytest.mark.parametrize("op", ["Relu", "HardSwish", "HardSigmoid"])
def test_matmul_activation_is_an_attribute(op):
    program, _ = same(
        model([node("MatMul", "x w", "m"), node(op, "m", "y")], {"x": ["N", 24]}, {"w": W}),
        {"x": _random(3, 24)},
        atol=1e-5,
    )
    assert ops(program) == ["MatMul"]
    assert _attribute(program, "MatMul", "activation") == op.lower()
    assert "epilogue" not in program.graphs[0].nodes[0].attributes


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (2.0, 0.0)])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(alpha, beta, transposed):
    attributes = {"alpha": alpha, "beta": beta, "transB": transposed}
    w = np.ascontiguousarray(W.T) if transposed else W
    program, _ = same(
        model([node("Gemm", "x w b", "y", **attributes)], {"x": ["N", 24]}, {"w": w, "b": B}),
        {"x": _random(3, 24)},
        atol=1e-5,
    )
    assert ops(program) == ["MatMul"]


def test_operand_that_widens_the_result_is_no_epilogue():
    nodes = chain("m = MatMul x w; y = Add m r")
    proto = model(nodes, {"x": [1, 24], "r": [7, 40]}, {"w": W})
    program, _ = same(proto, {"x": _random(1, 24), "r": _random(7, 40)}, atol=1e-5)
    assert ops(program) == ["MatMul", "Formula"]


def test_operand_of_another_name_may_widen_the_result():
    nodes = chain("m = MatMul x w; y = Add m r")
    proto = model(nodes, {"x": ["N", 24], "r": ["M", 40]}, {"w": W})
    program, _ = same(proto, {"x": _random(1, 24), "r": _random(7, 40)}, atol=1e-5)
    assert ops(program) == ["MatMul", "Formula"]


def test_product_read_twice_within_the_epilogue():
    nodes = chain("m = MatMul x w; s = Sigmoid m; p = Mul m s; y = Mul p m")
    program, _ = same(model(nodes, {"x": [3, 24]}, {"w": W}), {"x": _random(3, 24)}, atol=1e-5)
    assert ops(program) == ["MatMul"]


def test_two_products_added_are_one_epilogue():
    nodes = chain("m = MatMul x w; n = MatMul z w; s = Add m n; y = Tanh s")
    program, _ = same(
        model(nodes, {"x": [3, 24], "z": [3, 24]}, {"w": W}), {"x": _random(3, 24), "z": _random(3, 24)}, atol=1e-5
    )
    assert ops(program) == ["MatMul", "MatMul"]


def test_long_chains_are_cut():
    nodes = [node("Sin" if k % 2 else "Cos", f"v{k}", f"v{k + 1}") for k in range(200)]
    nodes[0].input[0], nodes[-1].output[0] = "x", "y"
    program, _ = same(model(nodes, {"x": [4]}), {"x": _random(4)}, rtol=1e-3, atol=1e-4)
    assert 2 <= len(ops(program)) <= 4


def test_many_operands_are_cut():
    names = [f"x{k}" for k in range(40)]
    nodes = [node("Add", "x0 x1", "s1")]
    nodes += [node("Add", f"s{k - 1} x{k}", f"s{k}" if k < 39 else "y") for k in range(2, 40)]
    program, _ = same(model(nodes, {key: [4] for key in names}), {n: _random(4) for n in names}, atol=1e-5)
    assert all(len(n.inputs) <= 16 for n in program.graphs[0].nodes)


def test_types_do_not_mix_in_one_formula():
    nodes = [node("Exp", "x", "a"), node("Cast", "a", "b", to=11), node("Neg", "b", "y")]
    program, _ = same(model(nodes, {"x": [4]}, output_dtype=11), {"x": _random(4)})
    assert ops(program) == ["Formula", "Cast", "Formula"]


def test_mask_arithmetic_fuses_across_bool_and_float():
    nodes = chain("c = Less x z; d = Not c; y = Where d x z")
    program, _ = same(model(nodes, {"x": [4], "z": [4]}), {"x": _random(4), "z": _random(4)})
    assert ops(program) == ["Formula"]


def test_report_reads_well():
    nodes = chain("m = MatMul x w; y = Relu m")
    _, report = compiled(model(nodes, {"x": ["N", 24]}, {"w": W}))
    text = str(report)
    for part in ("nodes        2 (opset 22) -> 1", "MatMul + relu 1", "algorithms   matmul 1"):
        assert part in text
    assert report.as_dict()["operators"] == {"MatMul": 1}


def test_a_sum_with_a_value_of_the_region_itself_is_no_residual():
    # A projection whose scale and shift are computed in the model: they cannot go into its weights.
    nodes = [
        node("Conv", "x v", "b"),
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        *chain("m = Mul b s; n = Add m t; z = Sum a n; y = Relu z"),
    ]
    feeds = {"x": _random(1, 16, 6, 6), "s": _random(1, 16, 1, 1), "t": _random(1, 16, 1, 1)}
    proto = model(
        nodes, {k: list(v.shape) for k, v in feeds.items()}, {"w": _random(16, 16, 3, 3), "v": _random(16, 16, 1, 1)}
    )
    program, _ = same(proto, feeds, rtol=1e-4, atol=1e-4)
    assert "Elementwise" not in ops(program)


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Mul x n",
        "a = Add x n; y = Relu a",
        "a = Mul x n; s = Sigmoid a; y = Mul s x",
        "a = Div x root; e = Erf a; f = Add e one; g = Mul x f; y = Mul g n",
        "a = Add x three; c = Clip a zero six; m = Mul x c; y = Div m wide",
        "a = Add x three; c = Clip a zero six; y = Div c wide",
        "m = MatMul x w; a = Add m n; y = Relu a",
        "y = Pow x n",
    ],
)
def test_a_number_of_more_dimensions_widens_the_result(nodes):
    constants = {
        "n": np.full((1, 1, 1), 0.5, np.float32),
        "wide": np.full((1, 1, 1), 6, np.float32),
        "w": np.ones((4, 4), np.float32),
        **{k: np.float32(v) for k, v in (("root", 2**0.5), ("one", 1), ("zero", 0), ("three", 3), ("six", 6))},
    }
    _, report = same(model(chain(nodes), {"x": ["N", 4]}, constants), {"x": np.ones((3, 4), np.float32)}, rtol=1e-5)
    assert not {"raise_gelu", "raise_swish", "raise_hard_swish"} & set(report.passes)
