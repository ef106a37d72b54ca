"""Symbolic shape inference on small graphs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opforge.errors import ArgumentError
from opforge.passes import _contract, fold_constants, infer_shapes, lift_constants, remove_dead, static_reshapes
from tests.unit.compiler.graphs import model, node


def _infer(proto):
    graph_model = ir.from_proto(proto)
    for graph_pass in (lift_constants, infer_shapes):
        _contract.run(graph_model, _contract.as_pass(graph_pass), check=True)
    return graph_model


def _shape(graph_model, name):
    value = next(o for n in graph_model.graph for o in n.outputs if o.name == name)
    dims = value.meta.get("dims")
    return None if dims is None else [str(d) for d in dims]


def _w(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "expected"),
    [
        (
            [node("Conv", "x w", "y", strides=[2, 2], pads=[1, 1, 1, 1])],
            {"x": ["N", 3, "H", "W"]},
            {"w": _w(8, 3, 3, 3)},
            ["N", "8", "((H+1)//2)", "((W+1)//2)"],
        ),
        (
            [node("ConvTranspose", "x w", "y", strides=[2, 2])],
            {"x": ["N", 8, "H", 5]},
            {"w": _w(8, 4, 2, 2)},
            ["N", "4", "2*H", "10"],
        ),
        (
            [node("MaxPool", "x", "y", kernel_shape=[2, 2], strides=[2, 2])],
            {"x": ["N", 3, "H", 7]},
            {},
            ["N", "3", "((H)//2)", "3"],
        ),
        ([node("GlobalAveragePool", "x", "y")], {"x": ["N", 3, "H", "W"]}, {}, ["N", "3", "1", "1"]),
        (
            [node("Resize", "x - s", "y", mode="nearest")],
            {"x": ["N", 3, "H", "W"]},
            {"s": np.float32([1, 1, 2, 3])},
            ["N", "3", "2*H", "3*W"],
        ),
        ([node("MatMul", "a b", "y")], {"a": ["B", "S", 8], "b": [8, "M"]}, {}, ["B", "S", "M"]),
        ([node("Concat", "a b", "y", axis=1)], {"a": ["B", "S", 8], "b": ["B", "T", 8]}, {}, ["B", "S+T", "8"]),
        ([node("Reshape", "x t", "y")], {"x": ["B", "S", 24]}, {"t": np.array([0, -1, 4, 6])}, ["B", "S", "4", "6"]),
        ([node("Reshape", "x t", "y")], {"x": ["B", "S", 24]}, {"t": np.array([-1, 24])}, ["B*S", "24"]),
        ([node("Shape", "x", "s"), node("Expand", "one s", "y")], {"x": ["B", "S"]}, {"one": _w(1)}, ["B", "S"]),
        (
            [node("Shape", "x", "s", start=1), node("Squeeze", "s", "n"), node("Range", "z n o", "y")],
            {"x": ["B", "S"]},
            {"z": np.array(0), "o": np.array(1)},
            ["S"],
        ),
        (
            [node("Slice", "x s e", "y")],
            {"x": ["B", 9]},
            {"s": np.array([0, 1]), "e": np.array([2**62, -1])},
            ["B", "7"],
        ),
        ([node("Transpose", "x", "y", perm=[1, 0])], {"x": ["B", 9]}, {}, ["9", "B"]),
    ],
)
def test_dimensions(nodes, inputs, constants, expected):
    dtype = 7 if nodes[-1].op_type == "Range" else 1
    assert _shape(_infer(model(nodes, inputs, constants, output_dtype=dtype)), "y") == expected


def test_what_meets_after_different_strides_is_presumed_equal():
    nodes = [
        node("Conv", "x w", "a", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", "a - s", "b", mode="nearest"),
        node("Add", "b x", "y"),
    ]
    constants = {"w": _w(3, 3, 3, 3), "s": np.float32([1, 1, 2, 2])}
    assert _shape(_infer(model(nodes, {"x": ["N", 3, "H", "W"]}, constants)), "y") == ["N", "3", "H", "W"]


def test_of_unrelated_names_nothing_is_presumed():
    graph_model = _infer(model([node("Add", "a b", "y")], {"a": ["N"], "b": ["M"]}))
    assert _shape(graph_model, "y")[0].startswith("?")


def test_anonymous_dimensions_stay_apart():
    graph_model = _infer(model([node("Relu", "x", "a"), node("Relu", "z", "y")], {"x": ["?", -1], "z": ["?", ""]}))
    shapes = _shape(graph_model, "a") + _shape(graph_model, "y")
    assert len(set(shapes)) == 4


def test_reshape_targets_from_shapes_become_constants():
    nodes = [
        node("Shape", "x", "b", end=1),
        node("Shape", "x", "s", start=1, end=2),
        node("Concat", "b s minus four", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    constants = {"minus": np.array([-1]), "four": np.array([4])}
    graph_model = _infer(model(nodes, {"x": ["B", "S", 24]}, constants))
    for graph_pass in (static_reshapes, infer_shapes, remove_dead):
        _contract.run(graph_model, _contract.as_pass(graph_pass), check=True)
    (left,) = list(graph_model.graph)
    assert left.inputs[1].const_value.numpy().tolist() == [0, 0, 6, 4]


def test_static_shape_arithmetic_folds():
    nodes = [node("Shape", "x", "s"), node("Gather", "s i", "g"), node("Mul", "g g", "y")]
    graph_model = _infer(model(nodes, {"x": [4, "N", 6]}, {"i": np.array([0, 2])}, output_dtype=7))
    assert fold_constants.call(graph_model) == 2
    (left,) = list(graph_model.graph)
    assert left.op_type == "Identity"
    assert left.inputs[0].const_value.numpy().tolist() == [16, 36]


def test_contradiction_names_the_node():
    with pytest.raises(ArgumentError, match="node 'MatMul_y'") as caught:
        _infer(model([node("MatMul", "x w", "y")], {"x": ["N", 5]}, {"w": _w(4, 3)}))
    assert "[N,5]" in str(caught.value)


def test_a_list_that_becomes_a_matrix_is_folded_as_one():
    """Elements of matrices are no list: neither their order nor their shape may be that of the flat ones."""
    constants = {"list": np.arange(6), "shape": np.array([2, 3]), "picked": np.array([1, 0])}
    nodes = [node("Reshape", "list shape", "matrix"), node("Gather", "matrix picked", "y", axis=1)]
    graph_model = _infer(model(nodes, {"x": [1]}, constants, outputs="y"))
    for graph_pass in (fold_constants, remove_dead):
        _contract.run(graph_model, _contract.as_pass(graph_pass), check=True)
    folded = [v.const_value.numpy().tolist() for v in graph_model.graph.initializers.values()]
    assert [[1, 0], [4, 3]] in folded


def test_a_range_may_have_bounds_of_one_dimension():
    constants = {"from": np.array([0]), "to": np.array([5]), "by": np.array(2)}
    graph_model = _infer(model([node("Range", "from to by", "y")], {"x": [1]}, constants, outputs="y"))
    assert _shape(graph_model, "y") == ["3"]
