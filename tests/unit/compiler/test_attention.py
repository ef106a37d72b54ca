"""Attention: raised from its parts, lowered to the runtime's node, products joined."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.unit.compiler.graphs import chain, model, node, ops, same

RNG = np.random.default_rng(8)
B, S, H, D = 2, 7, 4, 8


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _split(source, name, perm):
    return [node("Reshape", f"{source} heads", f"{name}_s"), node("Transpose", f"{name}_s", name, perm=perm)]


CONSTANTS = {
    "heads": np.array([0, 0, H, D]),
    "joined": np.array([0, 0, H * D]),
    "scale": np.float32(0.3),
    "zero": np.float32(0),
    "low": np.float32(-3.4e38),
    **{f"w{n}": _random(24, H * D) * 0.3 for n in "qkv"},
    **{f"b{n}": _random(H * D) for n in "qk"},
}


def _written_out(mask=False, cleaned=False, low="low"):
    """Attention as exporters write it, over three products of one input."""
    nodes = [node("MatMul", f"x w{n}", f"{n}0") for n in "qkv"]
    nodes += [node("Add", f"{n}0 b{n}", f"{n}1") for n in "qk"]
    nodes += _split("q1", "q", [0, 2, 1, 3]) + _split("k1", "k", [0, 2, 3, 1]) + _split("v0", "v", [0, 2, 1, 3])
    nodes += chain("qs = Mul q scale; ks = Mul scale k; s0 = MatMul qs ks")
    last = "s0"
    if mask:
        nodes += [node("Where", f"m zero {low}", "bias"), node("Add", "s0 bias", "s1")]
        last = "s1"
    nodes += [node("Softmax", last, "p", axis=-1)]
    if cleaned:
        nodes += chain("n = IsNaN p; pp = Where n zero p")
    nodes += [node("MatMul", f"{'pp' if cleaned else 'p'} v", "o"), node("Transpose", "o", "ot", perm=[0, 2, 1, 3])]
    return [*nodes, node("Reshape", "ot joined", "y")]


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("cleaned", [False, True])
def test_written_out(mask, cleaned):
    inputs = {"x": ["B", "S", 24]}
    feeds = {"x": _random(B, S, 24)}
    if mask:
        inputs["m"] = (TensorProto.BOOL, ["B", 1, 1, "S"])
        feeds["m"] = np.arange(S)[None, None, None] < np.array([3, S])[:, None, None, None]
    program, report = same(model(_written_out(mask, cleaned), inputs, CONSTANTS), feeds, rtol=1e-4, atol=1e-5)
    assert ops(program) == ["MatMul", *["Formula"] * mask, "Attention"]
    assert report.passes["raise_attention"] == 1
    attention = program.graphs[0].nodes[-1].attributes
    assert attention["scale"] == pytest.approx(0.09)
    assert (attention["k_offset"], attention["v_offset"]) == (H * D, 2 * H * D)


@pytest.mark.parametrize("cleaned", [False, True])
def test_rows_that_are_all_infinite(cleaned):
    """Such a row is NaN after a softmax, and 0 where the model cleans it."""
    constants = {**CONSTANTS, "low": np.float32(-np.inf)}
    inputs = {"x": ["B", "S", 24], "m": (TensorProto.BOOL, ["B", 1, 1, "S"])}
    feeds = {"x": _random(B, S, 24), "m": np.zeros((B, 1, 1, S), bool)}
    program, _ = same(model(_written_out(True, cleaned), inputs, constants), feeds, rtol=1e-4, atol=1e-5)
    assert ops(program)[-1] == "Attention"
    assert program.graphs[0].nodes[-1].attributes.get("nan_rows", 0) == (not cleaned)


def test_heads_first_form():
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "s"), node("Div", "s root", "t")]
    nodes += chain("p = Softmax t; y = MatMul p v")
    inputs = {key: ["B", H, "S", D] for key in "qkv"}
    program, _ = same(
        model(nodes, inputs, {"root": np.float32(2.5)}), {n: _random(B, H, S, D) for n in "qkv"}, rtol=1e-4, atol=1e-5
    )
    assert ops(program) == ["Attention"]
    assert program.graphs[0].nodes[0].attributes["scale"] == pytest.approx(0.4)


def _heads_first(q, k, v, mask=None):
    nodes = [node("Transpose", "k", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "s")]
    nodes += chain(
        "t = Add s m; p = Softmax t; y = MatMul p v" if mask is not None else "p = Softmax s; y = MatMul p v"
    )
    shapes = {"q": list(q), "k": list(k), "v": list(v)}
    constants = {} if mask is None else {"m": mask}
    return model(nodes, shapes, constants), {name: _random(*shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((2, 3, 4, 8), (1, 3, 5, 8), (2, 3, 5, 6)),
        ((2, 3, 4, 8), (2, 3, 5, 8), (1, 3, 5, 6)),
        ((1, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)),
        ((2, 1, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)),
        ((2, 3, 4, 8), (2, 3, 5, 8), (2, 1, 5, 6)),
        ((3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6)),
        ((2, 3, 4, 8), (2, 3, 5, 8), (5, 6)),
        ((2, 3, 4, 0), (2, 3, 5, 0), (2, 3, 5, 6)),
    ],
)
def test_products_that_broadcast_stay_products(q, k, v):
    """The node takes one batch and equal heads; products take more."""
    program, _ = same(*_heads_first(q, k, v), rtol=1e-4, atol=1e-5)
    assert "Attention" not in ops(program)


def test_one_head_of_keys_serves_all_queries():
    program, _ = same(*_heads_first((2, 3, 4, 8), (2, 1, 5, 8), (2, 1, 5, 6)), rtol=1e-4, atol=1e-5)
    assert ops(program) == ["Attention"]


def test_one_row_of_a_mask_is_no_triangle():
    """It looks like the first row of one."""
    row = np.array([[0, -np.inf, -np.inf, -np.inf, -np.inf]], np.float32)
    same(*_heads_first((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6), row), rtol=1e-4, atol=1e-5)


def test_a_mask_that_widens_the_scores_stays_a_sum():
    program, _ = same(
        *_heads_first((1, 3, 4, 8), (1, 3, 5, 8), (1, 3, 5, 6), _random(2, 1, 4, 5)), rtol=1e-4, atol=1e-5
    )
    assert "Attention" not in ops(program)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [None, np.float32, np.bool_])
def test_standard_node(causal, mask):
    inputs = {"q": ["B", S, H * D], "k": ["B", S, 2 * D], "v": ["B", S, 2 * 5]}
    feeds = {"q": _random(B, S, H * D), "k": _random(B, S, 2 * D), "v": _random(B, S, 10)}
    if mask is not None:
        inputs["m"] = (TensorProto.BOOL if mask is np.bool_ else TensorProto.FLOAT, [S, S])
        feeds["m"] = (_random(S, S) + np.eye(S) * 9 > 0) if mask is np.bool_ else _random(S, S)
    attributes = {"q_num_heads": H, "kv_num_heads": 2, "is_causal": causal}
    proto = model([node("Attention", "q k v" + (" m" if mask else ""), "y", **attributes)], inputs, opset=24)
    program, _ = same(proto, feeds, rtol=1e-4, atol=1e-5)
    assert [(n.domain, n.op) for n in program.graphs[0].nodes] == [("opforge", "Attention")]


@pytest.mark.parametrize("case", ["cache", "cap", "triangle", "window", "scores", "lengths", "short mask"])
@pytest.mark.parametrize("queries", [3, 9])
def test_forms_that_the_node_has(case, queries):
    inputs = {"q": ["B", queries, H * D], "k": ["B", "K", H * D], "v": ["B", "K", H * D]}
    feeds = {key: _random(B, queries if key == "q" else 9, H * D) for key in "qkv"}
    attributes = {"q_num_heads": H, "kv_num_heads": H}
    names, outputs = "q k v", "y"
    if case == "cache":
        names, outputs = "q k v - pk pv", "y k1 v1"
        inputs |= {"pk": ["B", H, "P", D], "pv": ["B", H, "P", D]}
        feeds |= {"pk": _random(B, H, 3, D), "pv": _random(B, H, 3, D)}
        attributes["is_causal"] = 1
    if case == "cap":
        attributes["softcap"] = 5.0
    if case == "triangle":
        attributes["is_causal"] = 1
    if case == "window":
        attributes |= {"left_window_size": 2, "right_window_size": 1}
    if case == "scores":
        outputs = "y - - s"
        attributes |= {"qk_matmul_output_mode": 3, "is_causal": 1}
    if case == "lengths":
        names = "q k v - - - n"
        inputs["n"], feeds["n"] = (TensorProto.INT64, ["B"]), np.array([4, 7])
        attributes["is_causal"] = 1
    if case == "short mask":
        names = "q k v m"
        inputs["m"], feeds["m"] = (TensorProto.BOOL, [1, 5]), np.array([[True, False, True, True, True]])
    opset = 25 if case == "window" else 24
    made = node("Attention", names, outputs, **attributes)
    made.output[:] = ["" if o == "-" else o for o in made.output]
    proto = model([made], inputs, outputs=" ".join(o for o in made.output if o), opset=opset)
    program, _ = same(proto, feeds, rtol=1e-4, atol=1e-5)
    assert [(n.domain, n.op) for n in program.graphs[0].nodes] == [("opforge", "Attention")]


def test_products_that_others_read_are_not_joined():
    nodes = [node("MatMul", f"x w{n}", n) for n in "qkv"]
    nodes += [node("Attention", "q k v", "a", q_num_heads=H, kv_num_heads=H), node("Add", "a k", "y")]
    program, _ = same(
        model(nodes, {"x": ["B", "S", 24]}, CONSTANTS, opset=24), {"x": _random(B, S, 24)}, rtol=1e-4, atol=1e-5
    )
    assert ops(program) == ["MatMul", "MatMul", "MatMul", "Attention", "Formula"]
