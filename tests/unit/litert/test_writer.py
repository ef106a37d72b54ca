"""ONNX models written for LiteRT: every row of the table against ONNX's own evaluator, and whole models."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import opforge as of
from opforge.errors import ArgumentError, DtypeError, MissingOperatorError, UnsupportedError

pytest.importorskip("ai_edge_litert")
pytestmark = pytest.mark.compiler

RNG = np.random.default_rng(3)


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i(*values, dtype=np.int64):
    return np.array(values, dtype)


def model_of(nodes, inputs, outputs, constants=(), domains=(), functions=(), opset=20):
    """``inputs`` and ``outputs``: name -> (element type, dims or None)."""
    made = [[helper.make_tensor_value_info(n, *kind) for n, kind in side.items()] for side in (inputs, outputs)]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in dict(constants).items()]
    graph = helper.make_graph(list(nodes), "g", *made, tensors)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*d) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def one(op, given, constants=(), outputs=1, opset=20, **attributes):
    """A model of one node: arrays that are inputs, then constants (None = absent)."""
    names = [f"x{k}" for k in range(len(given))] + ["" if c is None else f"c{k}" for k, c in enumerate(constants)]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], **attributes)
    inputs = {f"x{k}": (helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for k, a in enumerate(given)}
    held = {f"c{k}": c for k, c in enumerate(constants) if c is not None}
    results = {f"y{k}": (TensorProto.UNDEFINED, None) for k in range(outputs)}
    return model_of([node], inputs, results, held, opset=opset), {f"x{k}": a for k, a in enumerate(given)}


CASES = [
    *((op, [f(3, 5)]) for op in ("Abs", "Ceil", "Cos", "Exp", "Floor", "HardSwish", "Neg", "Relu", "Round", "Sigmoid")),
    *((op, [f(3, 5)]) for op in ("Sign", "Sin", "Tanh", "Softplus", "Softsign", "Mish", "Identity", "Elu", "Selu")),
    *((op, [np.abs(f(3, 5)) + 0.1]) for op in ("Log", "Sqrt", "Reciprocal")),
    *((op, [f(2, 3, 5), f(3, 1)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Greater", "LessOrEqual")),
    *((op, [f(2, 3), f(2, 3)]) for op in ("Equal", "Less", "GreaterOrEqual", "Sum", "Mean")),
    *((op, [f(4), f(4), f(4)]) for op in ("Max", "Sum", "Mean")),
    *((op, [f(4) > 0, f(4) > 0]) for op in ("And", "Or", "Xor")),
    ("Not", [f(4) > 0]),
    ("Add", [i(1, 2, 3), i(4, 5, 6)]),
    ("Mul", [i(1, 2, 3, dtype=np.int32), i(4, 5, 6, dtype=np.int32)]),
    ("Mod", [i(-7, 7, 5, dtype=np.int32), i(3, -3, 3, dtype=np.int32)]),
    ("Gelu", [f(9)], (), 1, 20, {"approximate": "none"}),
    ("Gelu", [f(9)], (), 1, 20, {"approximate": "tanh"}),
    ("Celu", [f(9)], (), 1, 20, {"alpha": 0.5}),
    ("Elu", [f(9)], (), 1, 20, {"alpha": 0.7}),
    ("HardSigmoid", [f(9)], (), 1, 20, {"alpha": 0.3}),
    ("LeakyRelu", [f(9)], (), 1, 20, {"alpha": 0.3}),
    ("PRelu", [f(2, 3, 4, 4)], (f(3, 1, 1),)),
    ("Clip", [f(9)], (np.float32(-0.5), np.float32(0.25))),
    ("Clip", [f(9)], (None, np.float32(0.25))),
    ("Clip", [i(-4, 0, 7, dtype=np.int32)]),
    ("Clip", [9 * f(9)], (np.float32(0), np.float32(6))),
    *(("Pow", [np.abs(f(5))], (np.float32(p),)) for p in (2.0, 0.5, 1.7)),
    ("Pow", [np.abs(f(5))], (np.int64(3),)),
    ("Where", [f(3, 4) > 0, f(3, 4), f(4)]),
    ("IsNaN", [np.array([1, np.nan, np.inf], np.float32)]),
    ("IsInf", [np.array([1, np.nan, -np.inf], np.float32)]),
    ("Cast", [f(5) * 9], (), 1, 20, {"to": TensorProto.INT32}),
    ("Cast", [i(0, 1, 2)], (), 1, 20, {"to": TensorProto.FLOAT}),
    ("Reshape", [f(2, 6)], (i(3, -1),)),
    ("Flatten", [f(2, 3, 4)], (), 1, 20, {"axis": 2}),
    ("Squeeze", [f(2, 1, 3)], (i(1),)),
    ("Unsqueeze", [f(2, 3)], (i(0, -1),)),
    ("Transpose", [f(2, 3, 4)], (), 1, 20, {"perm": [2, 0, 1]}),
    ("Concat", [f(2, 3), f(2, 1)], (), 1, 20, {"axis": -1}),
    ("Split", [f(2, 7)], (i(3, 4),), 2, 20, {"axis": 1}),
    ("Slice", [f(5, 6)], (i(1, 5), i(4, -10), i(0, 1), i(2, -2))),
    ("Slice", [f(5, 6)], (i(-2), i(2**62), i(1))),
    ("Gather", [f(5, 4)], (i(0, -1, 3),), 1, 20, {"axis": 1}),
    ("Gather", [f(5, 4), i(2, 0, 4)]),
    ("GatherND", [f(3, 4)], (np.array([[0, 1], [2, 3]]),)),
    ("Expand", [f(3, 1)], (i(2, 3, 4),)),
    ("Tile", [f(2, 3)], (i(2, 3),)),
    ("Pad", [f(2, 3)], (i(1, 0, 2, 1), np.float32(7))),
    ("Pad", [f(4, 5)], (i(1, 2, 2, 1),), 1, 20, {"mode": "reflect"}),
    ("CumSum", [f(3, 4)], (np.array(1),), 1, 20, {"exclusive": 1, "reverse": 1}),
    ("MatMul", [f(2, 3, 4), f(2, 4, 5)]),
    ("MatMul", [f(2, 3, 4)], (f(4, 5),)),
    ("Gemm", [f(3, 4)], (f(5, 4), f(5)), 1, 20, {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [f(4, 3), f(4, 5), f(5)], (), 1, 20, {"transA": 1, "beta": 0.5}),
    *((op, [np.abs(f(2, 3, 4)) + 0.1], (i(1),)) for op in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")),
    *((op, [np.abs(f(2, 3, 4)) + 0.1], (i(0, 2),), 1, 20, {"keepdims": 0}) for op in ("ReduceProd", "ReduceL2")),
    *((op, [np.abs(f(2, 3)) + 0.1], (i(1),)) for op in ("ReduceL1", "ReduceLogSum", "ReduceSumSquare")),
    ("ReduceSum", [f(2, 3)]),
    ("ArgMax", [f(3, 5)], (), 1, 20, {"axis": 1}),
    ("ArgMin", [f(3, 5)], (), 1, 20, {"axis": 0, "keepdims": 0}),
    ("Softmax", [f(2, 3, 4)]),
    ("Softmax", [f(2, 3, 4)], (), 1, 20, {"axis": 1}),
    ("LogSoftmax", [f(2, 5)]),
    ("LayerNormalization", [f(2, 3, 8)], (f(8), f(8))),
    ("TopK", [f(3, 9)], (i(4),), 2),
    ("Conv", [f(1, 3, 8, 9)], (f(4, 3, 3, 3), f(4)), 1, 20, {"pads": [1, 1, 1, 1]}),
    ("Conv", [f(2, 3, 8, 9)], (f(4, 3, 3, 2),), 1, 20, {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    ("Conv", [f(1, 4, 7, 7)], (f(8, 1, 3, 3), f(8)), 1, 20, {"group": 4}),
    ("Conv", [f(1, 4, 7, 7)], (f(6, 2, 3, 3),), 1, 20, {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("ConvTranspose", [f(1, 3, 5, 5)], (f(3, 4, 3, 3), f(4)), 1, 20, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    *(("ConvTranspose", [f(1, 3, 5, 5)], (f(3, 4, 3, 3),), 1, 20, {"strides": [2, 2], **size})
      for size in ({"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"})),
    ("MaxPool", [f(1, 2, 7, 8)], (), 1, 20, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("AveragePool", [f(1, 2, 8, 8)], (), 1, 20, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("AveragePool", [f(1, 2, 5, 5)], (), 1, 20, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("GlobalAveragePool", [f(2, 3, 4, 5)]),
    ("GlobalMaxPool", [f(2, 3, 4, 5)]),
    ("Resize", [f(1, 2, 3, 4)], (None, np.array([1, 1, 2, 2], np.float32)), 1, 20, {"mode": "nearest"}),
    ("Resize", [f(1, 2, 3, 4)], (None, None, i(1, 2, 5, 7)), 1, 20, {"mode": "linear"}),
    ("DepthToSpace", [f(1, 8, 2, 3)], (), 1, 20, {"blocksize": 2}),
    ("SpaceToDepth", [f(1, 2, 4, 6)], (), 1, 20, {"blocksize": 2}),
    ("BatchNormalization", [f(2, 3, 4, 4)], (f(3), f(3), f(3), np.abs(f(3)) + 0.5)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_standard_operators(case):
    op, given, constants, outputs, opset, attributes = (*case, *((), 1, 20, {})[len(case) - 2 :])
    model, inputs = one(op, given, constants, outputs, opset, **attributes)
    want = ReferenceEvaluator(model).run(None, inputs)
    got = of.litert.session(of.litert.convert(model)).run(inputs)
    for name, expected in zip(got, want, strict=True):
        assert got[name].dtype == np.asarray(expected).dtype and got[name].shape == np.asarray(expected).shape
        np.testing.assert_allclose(got[name], expected, rtol=2e-5, atol=2e-5)


def test_a_transposed_convolution_whose_size_says_what_is_cut_off():
    image, weights = f(1, 3, 5, 5), f(3, 4, 3, 3)
    by_size, inputs = one("ConvTranspose", [image], (weights,), strides=[2, 2], output_shape=[9, 9])
    by_pads, _ = one("ConvTranspose", [image], (weights,), strides=[2, 2], pads=[1, 1, 1, 1])
    (want,) = ReferenceEvaluator(by_pads).run(None, inputs)
    np.testing.assert_allclose(
        of.litert.session(of.litert.convert(by_size)).run(inputs)["y0"], want, rtol=2e-5, atol=2e-5
    )


def test_every_row_is_tried():
    from opforge.engines.litert.writer import ROWS

    elsewhere = {"If", "Shape", "Range", "ConstantOfShape", "Swish"}
    assert set(ROWS) - {case[0] for case in CASES} == elsewhere


def agrees(model, inputs, shapes=None, rtol=1e-5, engine="reference", tmp_path=None):
    from opforge.verify import find_engine

    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    want = find_engine(engine).load(path).run(inputs)
    got = of.litert.session(of.litert.convert(model, shapes=shapes)).run(inputs)
    again = find_engine("litert").load(path).run(inputs)
    for name, expected in want.items():
        for value in (got[name], again[name]):
            np.testing.assert_allclose(value, expected, rtol=rtol, atol=1e-5)
    return got


def test_sizes_that_the_graph_computes_stay_open(tmp_path):
    """Shape, Gather, Concat and Reshape of exporters: LiteRT resolves them when it is resized."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"]),
        helper.make_node("CustomGELU", ["r"], ["y"], domain="com.example"),
    ]
    of.load("opforge.ops:CustomGELU")
    constants = {"zero": i(0), "rest": i(2, -1)}
    kinds = {"x": (TensorProto.FLOAT, ["N", 6])}, {"y": (TensorProto.FLOAT, None)}
    model = model_of(nodes, *kinds, constants, [("com.example", 1)])
    for rows in (1, 5):
        assert agrees(model, {"x": f(rows, 6)}, tmp_path=tmp_path)["y"].shape == (rows, 2, 3)
    session = of.litert.session(of.litert.convert(model))
    assert [session.run({"x": f(rows, 6)})["y"].shape[0] for rows in (3, 1, 8)] == [3, 1, 8]


def test_ranges_and_fills_of_known_sizes(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1),
        helper.make_node("ConstantOfShape", ["s"], ["c"], value=numpy_helper.from_array(np.array([2.5], np.float32))),
        helper.make_node("Swish", ["x"], ["w"]),
        helper.make_node("Add", ["w", "c"], ["y"]),
        helper.make_node("Range", ["a", "b", "d"], ["z"]),
        helper.make_node("Shape", ["x"], ["t"]),
    ]
    kinds = {"x": (TensorProto.FLOAT, [2, 3])} | {n: (TensorProto.INT32, []) for n in "ab"}
    outputs = {"y": (TensorProto.FLOAT, None), "t": (TensorProto.INT64, None)}
    model = model_of(nodes[:4] + nodes[5:], {"x": kinds["x"]}, outputs, opset=24)
    agrees(model, {"x": f(2, 3)}, tmp_path=tmp_path)


def test_images_are_turned_once(tmp_path):
    """Convolutions in a row hand on images with channels last; the graph's layout comes back at the ends."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Add", ["b", "scale"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["d"]),
        helper.make_node("Clip", ["d", "low", "high"], ["e"]),
        helper.make_node("Concat", ["e", "d"], ["g"], axis=1),
        helper.make_node("MaxPool", ["g"], ["h"], kernel_shape=[2, 2]),
        helper.make_node("GlobalAveragePool", ["h"], ["y"]),
    ]
    constants = {"w1": f(4, 3, 3, 3), "w2": f(5, 4, 2, 2), "scale": f(4, 1, 1),
                 "low": np.float32(-1), "high": np.float32(1)}  # fmt: skip
    kinds = {"x": (TensorProto.FLOAT, ["N", 3, 8, 8])}, {"y": (TensorProto.FLOAT, None)}
    model = model_of(nodes, *kinds, constants)
    agrees(model, {"x": f(2, 3, 8, 8)}, tmp_path=tmp_path)
    from opforge.engines.litert._model import TfliteModel

    written = TfliteModel(of.litert.convert(model))
    kinds = [written.node_kind(k) for k in range(len(written.graph.operators))]
    assert kinds.count("TRANSPOSE") == 2


def test_a_branch_and_a_function_hold_our_nodes(tmp_path):
    """An If whose branches read outer values, and a function that calls an operator of ours."""
    of.load("opforge.ops")
    body = helper.make_function(
        "test.f", "Twice", ["v"], ["w"],
        [helper.make_node("CustomGELU", ["v"], ["t"], domain="com.example"),
         helper.make_node("Add", ["t", "t"], ["w"])],
        [helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)],
    )  # fmt: skip
    branches = {}
    for name, lo in (("then_branch", 0.2), ("else_branch", 0.4)):
        inner = [helper.make_node("ClipSigmoid", ["h"], [f"{name}_c"], domain="com.example", lo=lo),
                 helper.make_node("Mul", [f"{name}_c", "w"], [f"{name}_y"])]  # fmt: skip
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph(inner, name, [], [out])
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], domain="test.f"),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    kinds = {"x": (TensorProto.FLOAT, ["N", 4]), "c": (TensorProto.BOOL, [])}, {"y": (TensorProto.FLOAT, None)}
    model = model_of(nodes, *kinds, {"w": f(4)}, [("com.example", 1), ("test.f", 1)], [body])
    results = [agrees(model, {"x": f(3, 4), "c": np.array(c)}, tmp_path=tmp_path)["y"] for c in (True, False)]
    assert not np.allclose(*results)


def test_two_domains_with_two_versions(tmp_path):
    @of.formula("test.one::Bend", since=1)
    def first(x):
        return of.tanh(x)

    @of.formula("test.one::Bend", since=2)
    def second(x):
        return of.tanh(2 * x)

    @of.formula("test.two::Bend", since=1)
    def other(x, *, by: float = 3.0):
        return x * by

    for version in (1, 2):
        nodes = [helper.make_node("Bend", ["x"], ["h"], domain="test.one"),
                 helper.make_node("Bend", ["h"], ["y"], domain="test.two", by=0.5),
                 helper.make_node("Bend", ["h"], ["z"], domain="test.two")]  # fmt: skip
        outputs = {n: (TensorProto.FLOAT, None) for n in "yz"}
        model = model_of(nodes, {"x": (TensorProto.FLOAT, [4])}, outputs, (), [("test.one", version), ("test.two", 1)])
        x = f(4)
        got = agrees(model, {"x": x}, tmp_path=tmp_path)
        np.testing.assert_allclose(got["z"], 3 * np.tanh(version * x), rtol=1e-5)


def test_a_network_with_a_sparse_product(tmp_path):
    of.load("opforge.ops")
    nodes = [
        helper.make_node("SparseMatMul", ["values", "indices", "indptr", "x"], ["h"], domain="com.example"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["m"]),
        helper.make_node("ModSigmoid", ["m", "t"], ["y"], domain="com.example"),
    ]
    constants = {"values": f(7), "indices": i(0, 3, 1, 2, 4, 0, 4), "indptr": i(0, 2, 2, 5, 7), "w": f(6, 3), "t": f(3)}
    kinds = {"x": (TensorProto.FLOAT, [5, 6])}, {"y": (TensorProto.FLOAT, None)}
    agrees(model_of(nodes, *kinds, constants, [("com.example", 1)]), {"x": f(5, 6)}, tmp_path=tmp_path)


def test_what_cannot_be_written_is_listed():
    nodes = [helper.make_node("Erf", ["x"], ["a"], name="e"), helper.make_node("Det", ["a"], ["y"], name="d")]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, [3, 3])}, {"y": (TensorProto.FLOAT, None)})
    with pytest.raises(UnsupportedError) as caught:
        of.litert.convert(model)
    assert all(word in str(caught.value) for word in ("node 'e' (Erf)", "node 'd' (Det)"))
    node = helper.make_node("CustomGELUU", ["x"], ["y"], name="u", domain="com.example")
    kinds = {"x": (TensorProto.FLOAT, [3])}, {"y": (TensorProto.FLOAT, None)}
    unknown = model_of([node], *kinds, (), [("com.example", 1)])
    of.load("opforge.ops")
    with pytest.raises(MissingOperatorError, match=r"did you mean com\.example::CustomGELU"):
        of.litert.convert(unknown)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (one("Resize", [f(1, 2, 3, 4)], (None, np.float32([1, 1, 1.5, 1.3])), mode="linear"), "by sizes alone"),
        (one("Resize", [f(1, 2, 3, 4)], (None, np.float32([1, 1, 2, 2])), nearest_mode="floor"), "no such way"),
        (one("Pow", [i(1, 2, 3, dtype=np.int32)], (np.float32(1.5),)), "powers of one dtype"),
        (one("Add", [i(1, 2, dtype=np.int8), i(3, 4, dtype=np.int8)]), "as quantised numbers only"),
        (one("Div", [i(7, 9, dtype=np.int16), i(3, 4, dtype=np.int16)]), "as quantised numbers only"),
    ],
)
def test_what_litert_would_compute_otherwise_is_refused(model, words):
    with pytest.raises(UnsupportedError, match=words):
        of.litert.convert(model[0])


def test_custom_nodes_that_do_not_fit():
    of.load("opforge.ops")
    kinds = {"x": (TensorProto.FLOAT, [3])}, {"y": (TensorProto.FLOAT, None)}
    for attributes, words in (({"lo": "low"}, ("ClipSigmoid, attribute lo", "wrong attribute type", "float", "string")),
                              ({"low": 0.1}, ("ClipSigmoid", "unknown attribute", "low"))):  # fmt: skip
        node = helper.make_node("ClipSigmoid", ["x"], ["y"], domain="com.example", **attributes)
        with pytest.raises((ArgumentError, DtypeError)) as caught:
            of.litert.convert(model_of([node], *kinds, (), [("com.example", 1)]))
        assert all(word in str(caught.value) for word in words)
    node = helper.make_node("CustomGELU", ["x"], ["y"], domain="com.example")
    integers = {"x": (TensorProto.INT32, [3])}, {"y": (TensorProto.INT32, None)}
    with pytest.raises(DtypeError, match=r"argument x: wrong dtype"):
        of.litert.session(of.litert.convert(model_of([node], *integers, (), [("com.example", 1)]))).run(
            {"x": np.ones(3, np.int32)}
        )
    empty = {"x": (TensorProto.FLOAT, [0, 3])}, {"y": (TensorProto.FLOAT, None)}
    with pytest.raises(UnsupportedError, match="without elements"):
        of.litert.convert(model_of([node], *empty, (), [("com.example", 1)]))


def test_shapes_that_are_needed_and_wrong_ones(tmp_path):
    model = model_of([helper.make_node("Expand", ["x", "s"], ["e"]), helper.make_node("Add", ["e", "z"], ["y"])],
                     {"x": (TensorProto.FLOAT, [1, "K"]), "z": (TensorProto.FLOAT, ["N", "K"]),
                      "s": (TensorProto.INT64, [2])}, {"y": (TensorProto.FLOAT, None)})  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"shapes=\{\.\.\.\}"):
        of.litert.convert(model)
    nodes = [helper.make_node("Shape", ["z"], ["s"]), *model.graph.node]
    inputs = {"x": (TensorProto.FLOAT, [1, "K"]), "z": (TensorProto.FLOAT, ["N", "K"])}
    model = model_of(nodes, inputs, {"y": (TensorProto.FLOAT, None)})
    agrees(model, {"x": f(1, 3), "z": f(4, 3)}, {"x": (1, 3), "z": (4, 3)}, tmp_path=tmp_path)
    for shapes, words in (
        ({"q": (1,)}, ("no such input", "q")),
        ({"x": (2, 3)}, ("wrong shape", "input x")),
        ({"x": (1, 3), "z": (4, 5)}, ("two sizes for the dimension K",)),
    ):
        with pytest.raises(ArgumentError) as caught:
            of.litert.convert(model, shapes=shapes)
        assert all(word in str(caught.value) for word in words)


def test_the_file_is_written_whole(tmp_path):
    (operator,) = of.load("opforge.ops:CustomGELU")
    path = tmp_path / "gelu.tflite"
    data = of.litert.convert(of.onnx.one_node_model(operator), path)
    assert path.read_bytes() == data
    x = f(2, 3)
    got = of.litert.session(path).run({"x": x})
    np.testing.assert_allclose(next(iter(got.values())), operator.reference(x.astype(np.float64)), rtol=2e-6, atol=1e-6)
