"""Whole models: PP-OCR, the light models of onnx's own tests, and patterns that the passes know."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test.loader import load_model_tests

from opforge.engines.ncnn._convert import RULES, convert
from opforge.engines.ncnn._files import write_files
from opforge.engines.ncnn._run import Loaded
from opforge.errors import ArgumentError, MissingOperatorError, OpforgeError, UnsupportedError
from tests.unit.ncnn.conftest import OPTIONS, draw, model_of

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
RAPID = find_spec("rapidocr_onnxruntime")
MODELS = Path(RAPID.origin).parent / "models" if RAPID is not None and RAPID.origin else None


@pytest.mark.models
@pytest.mark.skipif(MODELS is None, reason="rapidocr-onnxruntime is not installed")
@pytest.mark.parametrize(
    "name, shapes",
    [
        ("ch_ppocr_mobile_v2.0_cls_infer", [(1, 3, 48, 192)]),
        ("ch_PP-OCRv4_det_infer", [(1, 3, 32, 64), (1, 3, 64, 32)]),
        ("ch_PP-OCRv4_rec_infer", [(1, 3, 48, 72)]),
    ],
)
def test_pp_ocr_runs_with_open_height_and_width(agree, name, shapes):
    model = onnx.load(MODELS / f"{name}.onnx")
    batch = model.graph.input[0].type.tensor_type.shape.dim[0]
    assert not batch.dim_value or batch.dim_value == -1
    for shape in shapes:
        kinds = agree(model, {"x": draw(shape)}, atol=2e-5, rtol=1e-4, options=OPTIONS[2:3])
    assert not any("_" in kind for kind in kinds)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "resnet50"])
def test_light_models_of_onnx_run(agree, name):
    """Their weights are all one number; the point is the graph."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    weights = {i.name for i in model.graph.initializer}
    (info,) = [i for i in model.graph.input if i.name not in weights]
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    agree(model, {info.name: draw(shape)}, rtol=1e-3, atol=1e-5, options=OPTIONS[2:3])


def test_activations_go_into_the_layer_before_them(agree):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((5, 5, 3, 3)).astype(np.float32) / 5
    acts = [("Relu", {}), ("LeakyRelu", {"alpha": 0.25}), ("Sigmoid", {}), ("HardSwish", {}), ("Mish", {})]
    nodes, last = [], "x"
    for k, (act, attributes) in enumerate(acts):
        nodes += [
            ("Conv", f"{last} w", f"c{k}", {"pads": [1, 1, 1, 1]}),
            (act, f"c{k}", f"a{k}" if k < len(acts) - 1 else "y", attributes),
        ]
        last = f"a{k}"
    model = model_of(nodes, {"x": ([1, 5, 7, 9], "f")}, constants={"w": w})
    kinds = agree(model, {"x": draw((1, 5, 7, 9))}, atol=1e-5)
    assert kinds == ["Input", *["Convolution"] * len(acts)]


def test_products_with_a_bias_and_batch_norms_are_one_layer(agree):
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((5, 7)).astype(np.float32),
        "b": rng.standard_normal(7).astype(np.float32),
        "k": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        **{n: rng.uniform(0.5, 1, 4).astype(np.float32) for n in ("s", "t", "m", "v")},
    }
    model = model_of([("MatMul", "x w", "a", {}), ("Add", "a b", "y", {})], {"x": ([3, 5], "f")}, constants=constants)
    assert agree(model, {"x": draw((3, 5))}) == ["Input", "InnerProduct"]
    model = model_of(
        [("Conv", "x k", "a", {}), ("BatchNormalization", "a s t m v", "y", {})],
        {"x": ([1, 3, 7, 9], "f")},
        constants=constants,
    )
    assert agree(model, {"x": draw((1, 3, 7, 9))}, atol=2e-5) == ["Input", "Convolution"]


@pytest.mark.parametrize("alpha", [1.0, 1.75])
def test_swish_written_out_is_swish(agree, alpha):
    nodes = [("Mul", "x k", "s", {}), ("Sigmoid", "s", "g", {}), ("Mul", "x g", "y", {})]
    model = model_of(nodes, {"x": ([3, 5], "f")}, constants={"k": np.float32(alpha)})
    kinds = agree(model, {"x": draw((3, 5), low=-4, high=4)}, atol=1e-5)
    assert ("Swish" in kinds) == (alpha == 1.0)


def test_attention_of_five_axes_moves_the_batch_inside(agree):
    """Queries, keys and values in one product, as PP-OCR's recogniser has them."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((12, 36)).astype(np.float32),
        "s": np.array([0, -1, 3, 4, 3]),
        "i0": np.int64(0),
        "i1": np.int64(1),
        "i2": np.int64(2),
        "r": np.array([0, -1, 12]),
    }
    nodes = [
        ("MatMul", "x w", "p", {}),
        ("Reshape", "p s", "h", {}),
        ("Transpose", "h", "t", {"perm": [2, 0, 3, 1, 4]}),
        *[("Gather", f"t i{k}", n, {"axis": 0}) for k, n in enumerate("qkv")],
        ("Transpose", "k", "kt", {"perm": [0, 1, 3, 2]}),
        ("MatMul", "q kt", "a", {}),
        ("Softmax", "a", "b", {"axis": -1}),
        ("MatMul", "b v", "c", {}),
        ("Transpose", "c", "d", {"perm": [0, 2, 1, 3]}),
        ("Reshape", "d r", "y", {}),
    ]
    model = model_of(nodes, {"x": ([1, "T", 12], "f")}, constants=constants)
    for steps in (5, 8):
        agree(model, {"x": draw((1, steps, 12))}, rtol=1e-4, atol=1e-5)


def test_rows_of_a_table_by_indices_from_outside(agree):
    table = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    model = model_of(
        [("Gather", "e i", "a", {}), ("Neg", "a", "y", {})], {"i": ([1, "T"], "q")}, constants={"e": table}
    )
    kinds = agree(model, {"i": np.array([[0, 6, 2, 2, 5]])})
    assert "Embed" in kinds


def test_a_value_that_is_read_twice_and_given_is_split(agree):
    nodes = [("Relu", "x", "a", {}), ("Neg", "a", "b", {}), ("Mul", "a b", "c", {})]
    model = model_of(nodes, {"x": ([1, 3, 5, 7], "f")}, outputs=["a", "b", "c"])
    assert agree(model, {"x": draw((1, 3, 5, 7))}).count("Split") == 2


def test_an_input_and_a_constant_may_be_outputs(agree):
    model = model_of(
        [("Identity", "x", "a", {}), ("Neg", "k", "b", {}), ("Relu", "x", "d", {})],
        {"x": ([3, 5], "f")},
        outputs=["a", "b", "d"],
        constants={"k": draw((2, 3))},
    )
    agree(model, {"x": draw((3, 5))})


def test_a_batch_without_a_number_becomes_one_only_where_it_must(agree):
    conv = model_of([("Conv", "x w", "y", {})], {"x": (["N", 3, "H", "W"], "f")}, constants={"w": draw((4, 3, 3, 3))})
    network = convert(conv)
    assert network.notes == ["N is 1: ncnn has no batch, and Conv needs one"]
    assert network.inputs[0].shape == (1, 3, "H", "W")
    agree(conv, {"x": draw((1, 3, 7, 9))}, atol=1e-5)
    rows = model_of([("MatMul", "x w", "y", {})], {"x": (["N", 5], "f")}, constants={"w": draw((5, 7))})
    assert convert(rows).notes == []
    for count in (1, 4):
        agree(rows, {"x": draw((count, 5))})
    assert convert(conv, sizes={"H": 8, "W": 8}).inputs[0].shape == (1, 3, 8, 8)
    with pytest.raises(ArgumentError, match=r"(?s)no such dimension.*'N'.*'Z'"):
        convert(conv, sizes={"Z": 1})


def test_a_batch_of_more_than_one_is_refused():
    model = model_of([("Conv", "x w", "y", {})], {"x": ([2, 3, 7, 9], "f")}, constants={"w": draw((4, 3, 3, 3))})
    with pytest.raises(
        UnsupportedError, match=r"ncnn has no batch: the first axis of \[2, 3, 7, 9\] must be 1 in Conv"
    ):
        convert(model)


def test_all_nodes_that_have_no_layer_are_listed_at_once():
    nodes = [
        ("Relu", "x", "a", {}),
        ("Sign", "a", "b", {}),
        ("no.where::What", "b", "c", {}),
        ("Pow", "a p", "d", {}),
        ("Cast", "a", "e", {"to": 7}),
        ("Where", "q c d", "f", {}),
        ("Conv", "a v", "y", {}),
    ]
    model = model_of(
        nodes,
        {"x": ([1, 3, 5, 7], "f"), "v": ([4, 3, 3, 3], "f")},
        outputs=["y", "f", "e"],
        constants={"p": np.float32(1.5), "q": np.array([True])},
        imports=[("no.where", 1)],
    )
    with pytest.raises(MissingOperatorError) as caught:
        convert(model)
    text = str(caught.value)
    for part in (
        "ncnn cannot run nodes of this model",
        "Sign (b): ncnn has no layer for it",
        "no.where::What (c): nothing defines it",
        "Pow (d): the power 1.5: ncnn's powers of negative numbers are not ONNX's",
        "Cast (e): from FLOAT to INT64: ncnn has no layer that converts integers",
        "Where (f): ncnn has no layer for it",
        "Conv (y): weights must be a constant",
    ):
        assert part in text, (part, text)
    assert text.count("\n    ") == 6


def test_a_kind_of_element_that_ncnn_has_not_is_refused():
    x = helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [3])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(UnsupportedError, match="ncnn's tensors hold float32 or int32"):
        convert(model)


def test_a_factor_that_gives_no_whole_size_is_refused():
    """Versions of ncnn count with the factor, or with the sizes."""
    scales = np.array([1, 1, 2, 1.5], np.float32)
    for width, words in ((9, "9 times 1.5 is no whole number"), ("W", "an axis of open size times a broken number")):
        model = model_of(
            [("Resize", "x  s", "y", {"mode": "linear"})], {"x": ([1, 3, 8, width], "f")}, constants={"s": scales}
        )
        model.graph.node[0].input[:] = ["x", "", "s"]
        with pytest.raises(UnsupportedError, match=words):
            convert(model)


def test_an_output_that_a_layer_does_not_have_is_refused():
    attributes = {"kernel_shape": [2, 2]}
    model = model_of([("MaxPool", "x", "y i", attributes)], {"x": ([1, 3, 5, 7], "f")}, outputs=["y"])
    model.graph.output.append(helper.make_tensor_value_info("i", onnx.TensorProto.INT64, None))
    with pytest.raises(UnsupportedError, match=r"MaxPool \(y\): its output i"):
        convert(model)
    sequence = helper.make_tensor_sequence_value_info("x", onnx.TensorProto.FLOAT, None)
    result = helper.make_tensor_sequence_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [sequence], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(UnsupportedError, match="input x: no tensor with a known number of axes"):
        convert(model)


def test_the_cases_of_onnx_that_convert_give_their_results(tmp_path):
    """ONNX's own cases of the operators that have layers; those of larger batches or other dtypes are refused."""
    ran = set()
    for case in load_model_tests(kind="node"):
        model = case.model
        if not all(n.op_type in RULES and not n.domain for n in model.graph.node):
            continue
        try:
            network = convert(model)
        except OpforgeError:
            continue
        write_files(network, tmp_path / "m.param")
        loaded = Loaded(tmp_path / "m.param", threads=1)
        known = {i.name for i in loaded.inputs}
        for given, wanted in case.data_sets:
            inputs = {i.name: _array(a) for i, a in zip(model.graph.input, given, strict=False) if i.name in known}
            got = loaded.run(inputs)
            for output, want in zip(model.graph.output, wanted, strict=True):
                np.testing.assert_allclose(got[output.name], _array(want), rtol=1e-3, atol=1e-4, err_msg=case.name)
        ran.add(case.name)
    assert len(ran) > 150


def _array(value):
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
