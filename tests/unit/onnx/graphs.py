"""Eleven graphs that simplifiers get wrong in one way or another; all hold custom nodes."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opforge as of

FLOAT = TensorProto.FLOAT
DOMAIN = "test.graphs"


@of.formula("test.graphs::Gelu2")
def gelu2(x):
    """A custom activation."""
    return 0.5 * x * (1 + of.tanh(of.sqrt(2 / of.pi) * (x + 0.044715 * x**3)))


@of.formula("test.graphs::Affine")
def affine(x, *, alpha: float = 1.0, times: int = 1):
    """Attributes of two kinds."""
    return x * alpha + times


@of.formula("test.other::Affine", since=2)
def other_affine(x, *, alpha: float = 1.0):
    """The same name in another domain and version."""
    return x * alpha - 1.0


def node(op, inputs, output, domain="", **attributes):
    return helper.make_node(op, inputs, [output], domain=domain, name=f"{output}_node", **attributes)


def ints(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def floats(name, shape, seed=0):
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), name)


def model(nodes, inputs, outputs, initializers=(), opsets=(("", 21), (DOMAIN, 1))):
    def info(item):
        return helper.make_tensor_value_info(*item)

    graph = helper.make_graph(nodes, "g", [info(i) for i in inputs], [info(o) for o in outputs], list(initializers))
    imports = [helper.make_opsetid(d, v) for d, v in opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _branches():
    out = helper.make_tensor_value_info
    then = helper.make_graph(
        [node("Identity", ["x"], "ti"), node("Gelu2", ["ti"], "to", DOMAIN)], "then", [], [out("to", FLOAT, ["N", 6])]
    )
    other = helper.make_graph(
        [node("Affine", ["x"], "eo", DOMAIN, alpha=2.0)], "else", [], [out("eo", FLOAT, ["N", 6])]
    )
    return {"then_branch": then, "else_branch": other}


X = [("x", FLOAT, ["N", 6])]
Y = [("y", FLOAT, ["N", 6])]


def graphs():
    """Return name -> model."""
    made = {}
    made["chain"] = model(
        [
            node("Transpose", ["x"], "a", perm=[1, 0]),
            node("Transpose", ["a"], "b", perm=[1, 0]),
            node("Reshape", ["b", "s1"], "c"),
            node("Gelu2", ["c"], "d", DOMAIN),
            node("Identity", ["d"], "e"),
            node("Reshape", ["e", "s2"], "g"),
            node("Reshape", ["g", "s3"], "y"),
        ],
        X,
        Y,
        [ints("s1", [-1, 2, 3]), ints("s2", [-1, 3, 2]), ints("s3", [-1, 6])],
    )
    made["constant_input"] = model(
        [node("Add", ["w", "w"], "w2"), node("Gelu2", ["w2"], "cw", DOMAIN), node("MatMul", ["x", "cw"], "y")],
        X,
        [("y", FLOAT, ["N", 4])],
        [floats("w", (6, 4))],
    )
    made["attributes"] = model(
        [
            node("Mul", ["k", "k"], "k2"),
            node("Add", ["x", "k2"], "xk"),
            node("Affine", ["xk"], "y", DOMAIN, alpha=2.5, times=3),
        ],
        X,
        Y,
        [floats("k", (1,))],
    )
    made["if"] = model(
        [helper.make_node("If", ["c"], ["y"], name="if", **_branches())], [*X, ("c", TensorProto.BOOL, [])], Y
    )
    made["if_constant"] = model(
        [helper.make_node("If", ["c"], ["z"], name="if", **_branches()), node("Relu", ["z"], "y")],
        X,
        Y,
        [numpy_helper.from_array(np.array(True), "c")],
    )
    made["optional_empty"] = model(
        [node("Clip", ["x", "", "hi"], "z"), node("Gelu2", ["z"], "y", DOMAIN)],
        X,
        Y,
        [numpy_helper.from_array(np.float32(0.5), "hi")],
    )
    made["two_domains"] = model(
        [node("Affine", ["x"], "t", DOMAIN, alpha=2.0), node("Affine", ["t"], "y", "test.other", alpha=3.0)],
        X,
        Y,
        opsets=(("", 21), (DOMAIN, 1), ("test.other", 2)),
    )
    made["symbolic_shape"] = model(
        [
            node("Gelu2", ["x"], "d", DOMAIN),
            node("Shape", ["d"], "sh"),
            node("Gather", ["sh", "i0"], "n"),
            node("Concat", ["n", "m1"], "ns", axis=0),
            node("Reshape", ["d", "ns"], "y"),
        ],
        [("x", FLOAT, ["N", 2, 3])],
        Y,
        [ints("i0", [0]), ints("m1", [-1])],
    )
    made["dead_and_shared"] = model(
        [
            node("Gelu2", ["x"], "p", DOMAIN),
            node("Gelu2", ["x"], "q", DOMAIN),
            node("Gelu2", ["x"], "dead", DOMAIN),
            node("Add", ["p", "q"], "y"),
        ],
        X,
        Y,
    )
    made["conv_batch_norm"] = model(
        [
            node("Conv", ["x", "w"], "a"),
            node("BatchNormalization", ["a", "s", "b", "m", "v"], "c"),
            node("Gelu2", ["c"], "d", DOMAIN),
            node("Dropout", ["d"], "y"),
        ],
        [("x", FLOAT, ["N", 3, 8, 8])],
        [("y", FLOAT, ["N", 4, 8, 8])],
        [
            floats("w", (4, 3, 1, 1)),
            *[
                numpy_helper.from_array(np.abs(np.random.default_rng(k).standard_normal(4)).astype(np.float32), n)
                for k, n in enumerate("sbmv")
            ],
        ],
    )
    function = helper.make_function(
        "test.fn",
        "G2",
        ["a"],
        ["b"],
        [helper.make_node("Gelu2", ["a"], ["t"], domain=DOMAIN), helper.make_node("Relu", ["t"], ["b"])],
        [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)],
    )
    made["function"] = model([node("G2", ["x"], "y", "test.fn")], X, Y, opsets=(("", 21), (DOMAIN, 1), ("test.fn", 1)))
    made["function"].functions.append(function)
    return {name: of.onnx.complete_model(m) for name, m in made.items()}


def feed(m: onnx.ModelProto, n=3):
    """Draw inputs."""
    rng = np.random.default_rng(5)
    values = {}
    for item in m.graph.input:
        shape = [n if d.dim_param else d.dim_value for d in item.type.tensor_type.shape.dim]
        boolean = item.type.tensor_type.elem_type == TensorProto.BOOL
        values[item.name] = np.array(True) if boolean else rng.standard_normal(shape).astype(np.float32)
    return values
