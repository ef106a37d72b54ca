"""Attention of decoders as exporters write it: triangles made in the graph, shared heads repeated, caches joined."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.unit.compiler.graphs import chain, model, node, ops, same

RNG = np.random.default_rng(21)
H, D = 4, 8
CONSTANTS = {
    "one": np.float32(1),
    "zero": np.float32(0),
    "low": np.float32(-np.inf),
    "lowest": np.float32(-3.4e38),
    "true": np.array(True),
    "k1": np.array(1),
    "tail": np.array([-2]),
    "end": np.array([-1]),
    "scale": np.float32(0.4),
    "ax": np.array([2]),
    "spread": np.array([1, 1, 2, 1, 1]),
    "joined": np.array([0, H, -1, D]),
}
SIZES = "qs = Shape q; ks = Shape k; a = Slice qs tail end; b = Slice ks tail end"
TRIANGLES = {
    "Trilu of ones, Equal, Where": "f = Expand one n; t = Trilu f; e = Equal t zero; m = Where e low zero",
    "finite": "f = Expand one n; t = Trilu f; e = Equal t zero; m = Where e lowest zero",
    "Trilu of -inf": "f = Expand low n; m = Trilu f k1",
}


def _random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def _after(keys: str, values: str, mask: str | None) -> list:
    nodes = [node("Transpose", keys, "kt", perm=[0, 1, 3, 2]), *chain("u = Mul q scale; s = MatMul u kt")]
    nodes += chain("sm = Add s m; p = Softmax sm") if mask else chain("p = Softmax s")
    return [*nodes, node("MatMul", f"p {values}", "y")]


@pytest.mark.parametrize("form", TRIANGLES)
def test_triangles(form: str) -> None:
    nodes = [*chain(SIZES), node("Concat", "a b", "n", axis=0), *chain(TRIANGLES[form])]
    for made in nodes:
        if made.op_type == "Trilu":
            made.attribute.append(helper.make_attribute("upper", int("k1" in made.input)))
    proto = model([*nodes, *_after("k", "v", "m")], {key: ["B", H, "S", D] for key in "qkv"}, CONSTANTS)
    program, _ = same(proto, {key: _random(2, H, 5, D) for key in "qkv"}, rtol=1e-4, atol=1e-5)
    assert ops(program) == ["Attention"]
    assert program.graphs[0].nodes[0].attributes["causal"] == 1


def test_another_diagonal_stays_a_mask() -> None:
    constants = {**CONSTANTS, "k1": np.array(2)}
    nodes = [*chain(SIZES), node("Concat", "a b", "n", axis=0), node("Expand", "low n", "f")]
    nodes += [node("Trilu", "f k1", "m", upper=1), *_after("k", "v", "m")]
    proto = model(nodes, {key: ["B", H, "S", D] for key in "qkv"}, constants)
    program, _ = same(proto, {key: _random(2, H, 5, D) for key in "qkv"}, rtol=1e-4, atol=1e-5)
    assert ops(program)[-1] == "Attention"
    assert program.graphs[0].nodes[-1].attributes["causal"] == 0


def test_constant_triangle() -> None:
    constants = {**CONSTANTS, "m": np.triu(np.full((5, 5), -np.inf, np.float32), 1)}
    proto = model(_after("k", "v", "m"), {key: ["B", H, 5, D] for key in "qkv"}, constants)
    program, _ = same(proto, {key: _random(2, H, 5, D) for key in "qkv"}, rtol=1e-4, atol=1e-5)
    assert program.graphs[0].nodes[-1].attributes["causal"] == 1
    assert len(program.graphs[0].nodes[-1].inputs) == 3


def test_repeated_heads_over_a_cache() -> None:
    """The cache is joined once, and both query heads of a group read it as it lies."""
    nodes = [node("Concat", "pk k", "k2", axis=2), node("Concat", "pv v", "v2", axis=2)]
    for x in "kv":
        nodes += chain(f"{x}3 = Unsqueeze {x}2 ax; {x}4 = Expand {x}3 spread; {x}5 = Reshape {x}4 joined")
    nodes += _after("k5", "v5", None)
    inputs = {"q": [2, H, 1, D], **{key: [2, H // 2, 1, D] for key in "kv"}}
    inputs |= {f"p{key}": [2, H // 2, "P", D] for key in "kv"}
    feeds = {"q": _random(2, H, 1, D), **{key: _random(2, H // 2, 1, D) for key in "kv"}}
    feeds |= {f"p{key}": _random(2, H // 2, 6, D) for key in "kv"}
    proto = model(nodes, inputs, CONSTANTS, outputs="y k2 v2")
    program, _ = same(proto, feeds, rtol=1e-4, atol=1e-5)
    assert ops(program) == ["Concat", "Concat", "Attention"]
    assert program.graphs[0].nodes[-1].attributes["kv_num_heads"] == H // 2
