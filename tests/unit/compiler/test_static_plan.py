"""Static shapes are planned when the file is written; symbolic ones are not."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import opforge as of
from opforge.bin.format import read
from opforge.errors import OpforgeError


def chain(batch):
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((32, 32)).astype(np.float32), f"w{k}") for k in range(3)]
    nodes, last = [], "x"
    for k in range(3):
        nodes += [
            helper.make_node("MatMul", [last, f"w{k}"], [f"m{k}"]),
            helper.make_node("Softmax", [f"m{k}"], [f"s{k}"]),
        ]
        last = f"s{k}"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, [batch, 32])], [info(last, TensorProto.FLOAT, [batch, 32])], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_static_shapes_are_planned_in_the_file(tmp_path):
    of.compile(chain(5), tmp_path / "static.bin")
    arena, entries = read(tmp_path / "static.bin").plan
    assert arena > 0 and entries
    assert all(0 <= e.offset and e.offset + e.size <= arena for e in entries)
    of.compile(chain("N"), tmp_path / "symbolic.bin")
    assert read(tmp_path / "symbolic.bin").plan is None
    x = np.random.default_rng(1).standard_normal((5, 32)).astype(np.float32)
    results = [of.Session(tmp_path / name).run({"x": x})["s2"] for name in ("static.bin", "symbolic.bin")]
    np.testing.assert_array_equal(*results)


def test_a_static_model_that_cannot_run_is_refused_when_it_is_compiled(tmp_path):
    model = chain(5)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 31
    with pytest.raises(OpforgeError):
        of.compile(model, tmp_path / "bad.bin")
    assert not (tmp_path / "bad.bin").exists()
