"""Every pass: what it finds, what it must leave, and that results stay the same."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from opforge.errors import InternalError
from opforge.passes import _contract, infer_shapes, lift_constants, remove_dead
from tests.unit.compiler.graphs import chain, model, node

RNG = np.random.default_rng(4)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _apply(proto, *names, feeds=None, tolerance=1e-5):
    """Run passes (shapes are inferred before and after each), compare results, return operators left."""
    graph_model = ir.from_proto(proto)
    todo = [lift_constants, infer_shapes]
    for name in names:
        module = __import__(f"opforge.passes.{name}", fromlist=["call"])
        todo += [module, infer_shapes]
    counts = [_contract.run(graph_model, _contract.as_pass(m), check=True) for m in [*todo, remove_dead]]
    after = ir.to_proto(graph_model)
    after.ir_version = max(after.ir_version, 10)
    onnx.checker.check_model(after)
    if feeds is not None:
        want = ReferenceEvaluator(proto).run(None, feeds)
        got = ReferenceEvaluator(after).run(None, feeds)
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert [o.name for o in after.graph.output] == [o.name for o in proto.graph.output]
    return [n.op_type for n in after.graph.node], sum(counts[2:-1:2]), after


HALF, ONE, ROOT2 = np.float32(0.5), np.float32(1), np.float32(math.sqrt(2))
GELU = {"half": HALF, "one": ONE, "root2": ROOT2, "iroot2": np.float32(math.sqrt(0.5)), "c": np.float32(0.044715)}
GELU |= {"k": np.float32(math.sqrt(2 / math.pi)), "three": np.float32(3), "two": np.float32(2)}


@pytest.mark.parametrize(
    "nodes",
    [
        chain("a = Div x root2; b = Erf a; c1 = Add b one; d = Mul x c1; y = Mul d half"),
        chain("a = Mul x iroot2; b = Erf a; c1 = Add one b; d = Mul half c1; y = Mul x d"),
        chain("a = Div x root2; b = Erf a; c1 = Add b one; d = Mul x half; y = Mul d c1"),
        chain("a = Div x root2; b = Erf a; c1 = Add b one; d = Mul x c1; y = Div d two"),
    ],
)
def test_erf_gelu(nodes):
    left, _, after = _apply(model(nodes, {"x": ["N"]}, GELU), "raise_gelu", feeds={"x": _random(40)})
    assert left == ["Gelu"]
    assert after.graph.node[0].attribute[0].s == b"none"


@pytest.mark.parametrize(
    "cube",
    [
        chain("p = Pow x three; q = Mul c p"),
        chain("s = Mul x x; p = Mul s x; q = Mul p c"),
    ],
)
def test_tanh_gelu(cube):
    nodes = [*cube, node("Add", "x q", "i"), node("Mul", "k i", "u"), node("Tanh", "u", "t"), node("Add", "t one", "v")]
    nodes += chain("h = Mul half x; y = Mul h v")
    left, _, after = _apply(model(nodes, {"x": ["N"]}, GELU), "raise_gelu", feeds={"x": _random(40)})
    assert left == ["Gelu"]
    assert after.graph.node[0].attribute[0].s == b"tanh"


@pytest.mark.parametrize("change", ["constant", "reader", "other"])
def test_what_only_looks_like_gelu_stays(change):
    nodes = chain("a = Div x root2; b = Erf a; c1 = Add b one; d = Mul x c1; y = Mul d half")
    outputs, constants = "y", dict(GELU)
    if change == "constant":
        constants["root2"] = np.float32(1.5)
    if change == "reader":
        outputs = "y d"
    if change == "other":
        nodes[3] = node("Mul", "z c1", "d")
    left, count, _ = _apply(model(nodes, {"x": ["N"], "z": ["N"]}, constants, outputs), "raise_gelu")
    assert count == 0
    assert "Erf" in left


THREE = {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6), "sixth": np.float32(1 / 6)}


@pytest.mark.parametrize(
    "tail",
    [
        chain("m = Mul x c; y = Div m six"),
        chain("m = Div c six; y = Mul m x"),
        chain("m = Mul c x; y = Mul m sixth"),
    ],
)
def test_hard_swish(tail):
    nodes = [node("Add", "x three", "a"), node("Clip", "a zero six", "c"), *tail]
    constants = {**THREE}
    left, _, _ = _apply(model(nodes, {"x": ["N"]}, constants), "raise_hard_swish", feeds={"x": _random(40) * 4})
    assert left == ["HardSwish"]


def test_hard_swish_from_hard_sigmoid():
    nodes = [node("HardSigmoid", "x", "h", alpha=1 / 6, beta=0.5), node("Mul", "x h", "y")]
    assert _apply(model(nodes, {"x": ["N"]}), "raise_hard_swish", feeds={"x": _random(40) * 4})[0] == ["HardSwish"]


def test_hard_sigmoid():
    nodes = chain("a = Add x three; c = Clip a zero six; y = Div c six")
    constants = {**THREE}
    left, _, _ = _apply(model(nodes, {"x": ["N"]}, constants), "raise_hard_swish", feeds={"x": _random(40) * 4})
    assert left == ["HardSigmoid"]


def test_relu6_is_no_hard_sigmoid():
    nodes = [node("Clip", "x zero six", "y")]
    assert _apply(model(nodes, {"x": ["N"]}, {**THREE}), "raise_hard_swish")[0] == ["Clip"]


def test_swish_and_mish():
    proto = model(chain("a = Mul x k; s = Sigmoid a; y = Mul s x"), {"x": ["N"]}, GELU, opset=24)
    left, _, after = _apply(proto, "raise_swish")
    assert left == ["Swish"]
    assert after.graph.node[0].attribute[0].f == pytest.approx(math.sqrt(2 / math.pi))
    proto = model(chain("s = Softplus x; t = Tanh s; y = Mul x t"), {"x": ["N"]})
    assert _apply(proto, "raise_swish", feeds={"x": _random(40)})[0] == ["Mish"]


@pytest.mark.parametrize("affine", [0, 1, 2])
@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_layer_norm(affine, square):
    nodes = chain("m = ReduceMean x ax; d = Sub x m")
    nodes += [
        node("Pow", "d two", "q") if square == "Pow" else node("Mul", "d d", "q"),
        node("ReduceMean", "q ax", "v"),
    ]
    nodes += chain("e = Add v eps; r = Sqrt e; n = Div d r")
    nodes += chain("s = Mul n g; t = Add b s")[:affine]
    nodes[-1].output[0] = "y"
    constants = {
        "ax": np.array([-1]),
        "two": np.float32(2),
        "eps": np.float32(1e-5),
        "g": _random(16),
        "b": _random(16),
    }
    left, _, _ = _apply(
        model(nodes, {"x": ["N", 5, 16]}, constants), "raise_layer_norm", feeds={"x": _random(2, 5, 16)}
    )
    assert left == ["LayerNormalization"]


def test_mean_over_another_axis_is_no_layer_norm():
    nodes = chain("m = ReduceMean x ax; d = Sub x m; q = Mul d d; v = ReduceMean q ax")
    nodes += chain("e = Add v eps; r = Sqrt e; y = Div d r")
    proto = model(nodes, {"x": ["N", 5, 16]}, {"ax": np.array([1]), "eps": np.float32(1e-5)})
    assert _apply(proto, "raise_layer_norm")[1] == 0


def test_two_transposes_become_one_or_none():
    nodes = [
        node("Transpose", "x", "a", perm=[1, 2, 0]),
        node("Transpose", "a", "b", perm=[0, 2, 1]),
        node("Relu", "b", "y"),
    ]
    left, _, after = _apply(model(nodes, {"x": [2, 3, 4]}), "cancel_transposes", feeds={"x": _random(2, 3, 4)})
    assert left == ["Transpose", "Relu"]
    assert list(after.graph.node[0].attribute[0].ints) == [1, 0, 2]
    nodes[1] = node("Transpose", "a", "b", perm=[2, 0, 1])
    assert _apply(model(nodes, {"x": [2, 3, 4]}), "cancel_transposes", feeds={"x": _random(2, 3, 4)})[0] == ["Relu"]


def test_identities():
    nodes = [
        node("Identity", "x", "a"),
        node("Dropout", "a", "b"),
        node("Cast", "b", "c", to=TensorProto.FLOAT),
        node("Reshape", "c t", "d"),
        node("Transpose", "d", "e", perm=[0, 1]),
        node("Pad", "e p", "f"),
        node("Slice", "f s e2", "g"),
        node("Expand", "g one", "h"),
        node("Relu", "h", "y"),
    ]
    constants = {
        "t": np.array([0, -1]),
        "p": np.zeros(4, np.int64),
        "s": np.array([0]),
        "e2": np.array([2**62]),
        "one": np.array([1]),
    }
    assert _apply(model(nodes, {"x": ["N", 4]}, constants), "remove_identities", feeds={"x": _random(3, 4)})[0] == [
        "Relu"
    ]


def test_input_that_is_output_keeps_its_identity():
    assert _apply(model([node("Identity", "x", "y")], {"x": [3]}), "remove_identities", feeds={"x": _random(3)})[0] == [
        "Identity"
    ]


def test_reversing_slice_is_no_identity():
    constants = {"s": np.array([-1]), "e": np.array([-100]), "a": np.array([0]), "m": np.array([-1])}
    proto = model([node("Slice", "x s e a m", "y")], {"x": [3]}, constants)
    assert _apply(proto, "remove_identities", feeds={"x": _random(3)})[0] == ["Slice"]


def test_common_subexpressions_and_constants():
    nodes = chain("p = Mul x a; q = Mul x b; e = Exp p; f = Exp q; y = Sub e f")
    proto = model(nodes, {"x": [3]}, {"a": np.float32(2), "b": np.float32(2)})
    assert _apply(proto, "share_subexpressions", feeds={"x": _random(3)})[0] == ["Mul", "Exp", "Sub"]


def test_random_nodes_are_never_shared():
    nodes = chain("a = RandomNormalLike x; b = RandomNormalLike x; y = Sub a b")
    assert len(_apply(model(nodes, {"x": [3]}), "share_subexpressions")[0]) == 3


def test_folding_respects_its_limit():
    nodes = chain("a = Expand c big; y = Add a x")
    proto = model(nodes, {"x": [2048, 2048]}, {"c": np.float32([1]), "big": np.array([2048, 2048])})
    assert _apply(proto, "fold_constants")[0] == ["Expand", "Add"]


def test_folding_keeps_output_names():
    proto = model([node("Add", "a b", "y")], {"x": [1]}, {"a": np.float32([1]), "b": np.float32([2])})
    left, _, after = _apply(proto, "fold_constants", feeds={"x": _random(1)})
    assert left == ["Identity"]
    assert after.graph.output[0].name == "y"


@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("first", [True, False])
def test_scale_shift(op, first):
    operands = "c s" if first else "s c"
    nodes = [node("Conv", "x w b", "c"), node(op, operands, "y")]
    constants = {"w": _random(6, 4, 1, 1), "b": _random(6), "s": np.abs(_random(6, 1, 1)) + 0.5}
    left, _, _ = _apply(
        model(nodes, {"x": [2, 4, 3, 3]}, constants),
        "fold_scale_shift",
        feeds={"x": _random(2, 4, 3, 3)},
        tolerance=1e-4,
    )
    assert left == (["Conv", "Div"] if op == "Div" and not first else ["Conv"])


@pytest.mark.parametrize("shape", [(3,), (1, 1, 3), (2, 6, 1, 1), (6, 3, 3), (1, 1, 6, 1, 1)])
def test_other_broadcasts_are_not_absorbed(shape):
    nodes = chain("c = Conv x w; y = Add c s")
    constants = {"w": _random(6, 4, 1, 1), "s": _random(*shape)}
    assert (
        _apply(model(nodes, {"x": [2, 4, 3, 3]}, constants), "fold_scale_shift", feeds={"x": _random(2, 4, 3, 3)})[1]
        == 0
    )


def test_scale_of_a_product():
    nodes = chain("c = MatMul x w; y = Mul c s")
    constants = {"w": _random(4, 6), "s": _random(6)}
    assert _apply(model(nodes, {"x": [3, 4]}, constants), "fold_scale_shift", feeds={"x": _random(3, 4)})[0] == [
        "MatMul"
    ]


def test_half_weights_stay():
    nodes = chain("c = Conv x w; y = Mul c s")
    constants = {"w": _random(6, 4, 1, 1).astype(np.float16), "s": np.float16(3)}
    assert _apply(model(nodes, {"x": [2, 4, 3, 3]}, constants, dtype=TensorProto.FLOAT16), "fold_scale_shift")[1] == 0


def test_contract_names_what_is_missing():
    graph_model = ir.from_proto(model([helper.make_node("Constant", [], ["y"], value_float=1.0)], {"x": [1]}))
    with pytest.raises(InternalError, match=r"remove_identities: a pass was run too early(.|\n)*constants"):
        module = __import__("opforge.passes.remove_identities", fromlist=["call"])
        _contract.run(graph_model, _contract.as_pass(module), check=True)
