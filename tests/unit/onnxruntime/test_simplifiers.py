"""What others simplify still holds our nodes, and gives the same numbers in ONNX Runtime with our kernels."""

import contextlib
import io

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import opforge as of
from tests.unit.onnxruntime.conftest import FLOAT, INT64, make_model

ort = pytest.importorskip("onnxruntime")
onnxsim = pytest.importorskip("onnxsim")
onnxslim = pytest.importorskip("onnxslim")
pytestmark = pytest.mark.compiler
DOMAIN = "com.example"
OTHER = "org.opforge"


def ours(kind, inputs, outputs, domain=DOMAIN, **attributes):
    return helper.make_node(kind, inputs, outputs, domain=domain, name=f"{outputs[0]}_node", **attributes)


def plain(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, name=f"{outputs[0]}_node", **attributes)


def ints(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def floats(name, *shape):
    return numpy_helper.from_array(np.random.default_rng(0).standard_normal(shape).astype(np.float32), name)


def model(nodes, constants=(), shape=("N", 6), domains=((DOMAIN, 1),), **options):
    return make_model(
        nodes, {"x": (FLOAT, list(shape))}, {"y": (FLOAT, ["N", 6])}, domains, constants=constants, **options
    )


def branches(condition):
    yes = helper.make_graph([ours("CustomGELU", ["x"], ["t"])], "yes", [],
                            [helper.make_tensor_value_info("t", FLOAT, ["N", 6])])  # fmt: skip
    no = helper.make_graph([ours("ClipSigmoid", ["x"], ["n"])], "no", [],
                           [helper.make_tensor_value_info("n", FLOAT, ["N", 6])])  # fmt: skip
    nodes = [plain("If", [condition], ["z"], then_branch=yes, else_branch=no), plain("Relu", ["z"], ["y"])]
    return nodes


FUNCTION = helper.make_function(
    "local", "Both", ["a"], ["b"],
    [helper.make_node("CustomGELU", ["a"], ["t"], domain=DOMAIN), helper.make_node("Relu", ["t"], ["b"])],
    [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)],
)  # fmt: skip

MODELS = {
    "around a node": model(
        [
            plain("Transpose", ["x"], ["a"], perm=[1, 0]),
            plain("Transpose", ["a"], ["b"], perm=[1, 0]),
            ours("CustomGELU", ["b"], ["c"]),
            plain("Identity", ["c"], ["d"]),
            plain("Reshape", ["d", "s"], ["y"]),
        ],
        [ints("s", [-1, 6])],
    ),
    "a constant input": model(
        [
            plain("Add", ["w", "w"], ["v"]),
            ours("CustomGELU", ["v"], ["g"]),
            plain("MatMul", ["x", "g"], ["y"]),
        ],
        [floats("w", 6, 6)],
    ),
    "attributes": model(
        [ours("ClipSigmoid", ["x"], ["a"], lo=0.25, hi=0.75), ours("ClipSigmoid", ["a"], ["y"], hi=0.625)]
    ),
    "two domains": model(
        [ours("CustomGELU", ["x"], ["a"]), ours("Swish", ["a"], ["y"], OTHER)], domains=((DOMAIN, 1), (OTHER, 1))
    ),
    "a shape that is computed": model(
        [
            plain("Shape", ["x"], ["s"]),
            plain("Gather", ["s", "zero"], ["n"]),
            plain("Concat", ["n", "rest"], ["all"], axis=0),
            ours("CustomGELU", ["x"], ["g"]),
            plain("Reshape", ["g", "all"], ["y"]),
        ],
        [ints("zero", [0]), ints("rest", [-1])],
        shape=("N", 2, 3),
    ),
    "dead and equal nodes": model(
        [
            ours("CustomGELU", ["x"], ["p"]),
            ours("CustomGELU", ["x"], ["q"]),
            ours("CustomGELU", ["x"], ["dead"]),
            plain("Add", ["p", "q"], ["y"]),
        ]
    ),
    "a branch": make_model(branches("c"), {"x": (FLOAT, ["N", 6]), "c": (9, [])}, {"y": (FLOAT, ["N", 6])},
                           ((DOMAIN, 1),)),
    "a branch that is known": model(branches("c"), [numpy_helper.from_array(np.array(True), "c")]),
    "a function": model([ours("Both", ["x"], ["y"], "local")], domains=((DOMAIN, 1), ("local", 1)),
                        functions=[FUNCTION]),
}  # fmt: skip


def with_onnxsim(proto, name):
    # It loses the domain of what it takes out of a branch, so that pass stays off where a branch is known.
    skipped = ["eliminate_if_with_const_cond"] if name == "a branch that is known" else None
    return onnxsim.simplify(proto, skipped_optimizers=skipped)[0]


def with_onnxslim(proto, name):
    return onnxslim.slim(proto)


def with_onnxruntime(proto, name, tmp_path):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    of.onnxruntime.session(proto, options)
    return onnx.load(tmp_path / "optimised.onnx")


def custom(proto):
    from opforge.onnx._walk import nodes

    return [f"{p.node.domain}::{p.node.op_type}" for p in nodes(proto) if p.node.domain in (DOMAIN, OTHER)]


@pytest.mark.parametrize("tool", ["onnxsim", "onnxslim", "onnxruntime"])
@pytest.mark.parametrize("name", list(MODELS))
def test_our_nodes_stay_and_compute_the_same(name, tool, tmp_path):
    of.load("opforge.ops")
    proto = MODELS[name]
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    with contextlib.redirect_stdout(io.StringIO()):
        found = {
            "onnxsim": lambda: with_onnxsim(copy, name),
            "onnxslim": lambda: with_onnxslim(copy, name),
            "onnxruntime": lambda: with_onnxruntime(copy, name, tmp_path),
        }[tool]()
    assert set(custom(found)) <= set(custom(proto)) and custom(found)
    shape = (4, 2, 3) if name == "a shape that is computed" else (4, 6)
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    if name == "a branch":
        feeds["c"] = np.array(False)
    expected = of.onnxruntime.session(proto).run(None, feeds)[0]
    np.testing.assert_allclose(of.onnxruntime.session(found).run(None, feeds)[0], expected, rtol=1e-5, atol=1e-6)


def test_the_known_failure_of_onnxsim_is_still_there():
    """When this fails, onnxsim keeps the domain, and what `with_onnxsim` and docs/onnxruntime.md say may go."""
    copy = onnx.ModelProto()
    copy.CopyFrom(MODELS["a branch that is known"])
    with pytest.raises(Exception, match="No Op registered for"):
        onnxsim.simplify(copy)


def test_indices_are_kept():
    """A kernel operator with int64 inputs."""
    of.load("opforge.ops")
    node = ours("SparseMatMul", ["v", "i", "p", "d"], ["y"])
    inputs = {"v": (FLOAT, ["nnz"]), "i": (INT64, ["nnz"]), "p": (INT64, [4]), "d": (FLOAT, [3, "K"])}
    proto = make_model([node], inputs, {"y": (FLOAT, [3, "K"])}, ((DOMAIN, 1),))
    feeds = {
        "v": np.array([1, 2, 3], np.float32), "i": np.array([0, 2, 1]), "p": np.array([0, 2, 2, 3]),
        "d": np.arange(6, dtype=np.float32).reshape(3, 2),
    }  # fmt: skip
    for found in (onnxsim.simplify(proto)[0], onnxslim.slim(proto), of.onnx.simplify(proto)):
        session = of.onnxruntime.session(found)
        assert session.run(None, feeds)[0].tolist() == [[8, 11], [0, 0], [6, 9]]
        assert session.get_outputs()[0].shape == [3, "K"]
