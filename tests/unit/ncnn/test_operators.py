"""Operators of ours in networks of ncnn: all of the library, every kind of attribute, both ways of running them."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import opforge as of
from opforge.engines.ncnn._convert import convert
from opforge.engines.ncnn._custom import CustomLayer, layer_kind
from opforge.engines.ncnn._files import write_files
from opforge.engines.ncnn._net import param_text, parse_param
from opforge.engines.ncnn._run import Loaded
from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.onnx import one_node_model
from opforge.schema import DType, Operator, registry
from opforge.verify.support import engine_support
from tests.unit.ncnn.conftest import BRAIN, OPTIONS, draw, model_of

pytestmark = pytest.mark.compiler
DOMAIN = ("com.example", 1)


def test_every_operator_of_the_library_runs_in_the_dtypes_that_ncnn_has():
    operators = [o for o in of.load("opforge.ops") if "Grad" not in o.name]
    rows = engine_support(operators, ["ncnn"])
    assert {row.operator for row in rows} == {o.qualified_name for o in operators}
    for row in rows:
        fits = not {"f16", "bf16", "f64"}.intersection(row.dtypes.split())
        assert row.passed == fits, row
        if not fits:
            assert "float32" in row.reason


@pytest.mark.parametrize("shape", [(1, 3, 5, 7), (1, 4, 3, 3), (1, 5, 7, 9), (1, 16, 3, 5), (3, 5), (7,), (2, 3, 5, 7)])
def test_packing_and_narrow_storage_before_and_after_change_nothing_but_rounding(agree, shape):
    gelu = of.load("opforge.ops:CustomGELU")[0]
    x = draw(shape, low=-2, high=2)
    model = model_of(
        [
            ("Relu", "x", "a", {}),
            ("com.example::CustomGELU", "a", "b", {}),
            ("Neg", "b", "d", {}),
            ("com.example::CustomGELU", "d", "y", {}),
        ],
        {"x": (list(shape), "f")},
        imports=[DOMAIN],
    )
    want = gelu.reference(-gelu.reference(np.maximum(x, 0).astype(np.float64))).astype(np.float32)
    kinds = agree(model, {"x": x}, want={"y": want}, options=OPTIONS + BRAIN)
    assert kinds.count("com_example_CustomGELU_1") == 2


def test_inputs_of_different_ranks_broadcast_as_in_numpy(agree):
    mod = of.load("opforge.ops:ModSigmoid")[0]
    x, t = draw((1, 5, 3, 7)), draw((3, 1), seed=1)
    model = model_of(
        [("Relu", "x", "a", {}), ("com.example::ModSigmoid", "a t", "b", {}), ("Neg", "b", "y", {})],
        {"x": ([1, 5, 3, 7], "f"), "t": ([3, 1], "f")},
        imports=[DOMAIN],
    )
    want = -mod.reference(np.maximum(x, 0).astype(np.float64), t.astype(np.float64)).astype(np.float32)
    agree(model, {"x": x, "t": t}, want={"y": want})


def test_a_constant_goes_to_an_operator_as_memory_data(agree):
    sparse = of.load("opforge.ops:SparseMatMul")[0]
    values, indices, indptr = np.float32([1, 2, 3]), np.array([0, 2, 1]), np.array([0, 2, 2, 3])
    dense = draw((3, 5))
    model = model_of(
        [("com.example::SparseMatMul", "v i p d", "a", {}), ("Relu", "a", "y", {})],
        {"d": ([3, 5], "f")},
        constants={"v": values, "i": indices, "p": indptr},
        imports=[DOMAIN],
    )
    want = np.maximum(sparse.reference(values, indices, indptr, dense), 0).astype(np.float32)
    kinds = agree(model, {"d": dense}, want={"y": want}, options=OPTIONS + BRAIN)
    assert kinds.count("MemoryData") == 3


def test_integers_pass_between_operators_with_any_storage(agree):
    """Split and Reshape of ncnn would round them to 16 bits; they say that they do not."""
    sparse = of.load("opforge.ops:SparseMatMul")[0]
    indices, indptr = np.array([0, 2, 1, 2]), np.array([0, 2, 2, 4])
    v, w, d = draw((4,)), draw((4,), seed=1), draw((3, 5))
    model = model_of(
        [
            ("com.example::SparseMatMul", "v i p d", "a", {}),
            ("com.example::SparseMatMul", "w i p a", "b", {}),
            ("Neg", "b", "y", {}),
        ],
        {"v": ([4], "f"), "w": ([4], "f"), "i": ([4], "q"), "p": ([4], "q"), "d": ([3, 5], "f")},
        imports=[DOMAIN],
    )
    first = sparse.reference(v, indices, indptr, d)
    want = (-sparse.reference(w, indices, indptr, first)).astype(np.float32)
    inputs = {"v": v, "w": w, "i": indices, "p": indptr, "d": d}
    kinds = agree(model, inputs, want={"y": want}, options=OPTIONS + BRAIN)
    assert kinds.count("Split") == 2


@pytest.fixture
def many():
    """An operator with an attribute of every kind."""
    operator = Operator(
        "test.ncnn",
        "Many",
        '(x: f32[*S]; i: int = 3, f: float = 0.1, s: string = "é", b: bool = true, is_: ints = [1, -2], '
        'fs: floats = [0.1, 2.5], ss: strings = ["a", "", "ß"], bs: bools = [true, false], g: float = 1.0, '
        "hs: floats = [1.0]) -> (y: f32[*S])",
    )
    registry.register(operator)
    yield operator
    registry.unregister(operator)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"f": 1e-30, "s": "", "is_": [], "fs": [], "ss": [], "bs": []},
        {"f": 16777217.0, "g": np.inf, "hs": [np.nan, -np.inf, 0.3], "ss": ["12345"], "i": -(2**31)},
        {"f": -0.0, "g": np.pi, "fs": [1.17549435e-38, 3.4028235e38, -1 / 3]},
    ],
)
def test_attributes_of_every_kind_survive_the_text(many, given):
    values = many.coerce(given)
    layer = CustomLayer(many, values, (1,), (DType.parse("f32"),), (0,), (0,))
    from opforge.engines.ncnn._net import Layer

    text = param_text([Layer("Input", "x", [], ["x"]), Layer(layer_kind(many.key), "m", ["x"], ["y"], layer.params())])
    back = CustomLayer.read(many, parse_param(text, "text")[1].params, "m")
    for name, value in values.items():
        np.testing.assert_array_equal(np.asarray(back.attributes[name]), np.asarray(value), err_msg=name)
    assert np.signbit(back.attributes["f"]) == np.signbit(values["f"])


def test_ncnn_reads_floats_as_they_were_written(many):
    """Its own reader has 15 characters, counts digits in 32 bits, and rounds once at the end."""
    import ncnn

    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**31, 4000, dtype=np.int64).astype(np.uint32)
    numbers = [float(v) for v in bits.view(np.float32) if np.isfinite(v) and abs(v) > 1e-37][:400]
    seen = []

    class Reads(ncnn.Layer):
        def load_param(self, params):
            seen.extend(np.array(params.get(0, ncnn.Mat())).tolist())
            return 0

    kept = []

    def create():
        kept.append(Reads())
        return kept[-1]

    from opforge.engines.ncnn._net import Layer

    net = ncnn.Net()
    net.register_custom_layer("Reads", create, lambda layer: None)
    layers = [Layer("Input", "x", [], ["x"]), Layer("Reads", "r", ["x"], ["y"], {0: tuple(numbers)})]
    assert net.load_param_mem(param_text(layers)) == 0
    assert seen == numbers


def test_what_does_not_fit_is_refused(many):
    model = one_node_model(many, attributes={"i": 2**40})
    with pytest.raises(UnsupportedError, match="the attribute i does not fit 32 bits"):
        convert(model)
    double = of.load("opforge.ops:CustomGELU")[0]
    with pytest.raises(UnsupportedError, match="x is f64: ncnn's tensors hold float32 or int32"):
        convert(one_node_model(double, dtypes={"T": "f64"}))


ROUTE = """
    import numpy as np, ncnn, onnx
    import opforge as of
    from opforge.errors import UnsupportedError
    from tests.unit.ncnn.conftest import OPTIONS, BRAIN, draw, model_of
    from opforge.engines.ncnn._net import param_text

    gelu, mod, sparse = (of.load(f"opforge.ops:{n}")[0] for n in ("CustomGELU", "ModSigmoid", "SparseMatMul"))
    model = model_of(
        [("Relu", "x", "a", {}), ("com.example::CustomGELU", "a", "b", {}), ("Neg", "b", "d", {}),
         ("com.example::ModSigmoid", "d t", "y", {})],
        {"x": ([1, 5, 3, 7], "f"), "t": ([7], "f")}, imports=[("com.example", 1)],
    )
    of.ncnn.convert(model, FOLDER + "/net.param")
    x, t = draw((1, 5, 3, 7), low=-2, high=2), draw((7,), seed=1)
    want = mod.reference(-gelu.reference(np.maximum(x, 0).astype(np.float64)), t.astype(np.float64))
    for options in OPTIONS[:3] + BRAIN[1:]:
        net = ncnn.Net()
        net.opt.num_threads = 1
        for name, value in options.items():
            setattr(net.opt, name, value)
        kinds = of.ncnn.register(net, FOLDER + "/net.param")
        assert kinds == ["com_example_CustomGELU_1", "com_example_ModSigmoid_1"], kinds
        assert net.load_param(FOLDER + "/net.param") == 0 and net.load_model(FOLDER + "/net.bin") == 0
        layers = [layer for layer in net.layers() if layer.type in kinds]
        assert [layer.one_blob_only for layer in layers] == [True, False]
        for layer in layers:
            assert not (layer.support_inplace or layer.support_packing or layer.support_vulkan)
            assert not (layer.support_fp16_storage or layer.support_bf16_storage)
        extractor = net.create_extractor()
        extractor.input("x", ncnn.Mat(x[0]).clone())
        extractor.input("t", ncnn.Mat(t).clone())
        code, mat = extractor.extract("y")
        assert code == 0
        tolerance = 5e-2 if options.get("use_bf16_storage") else 2e-6
        np.testing.assert_allclose(np.array(mat), want[0], atol=tolerance)
    # What an operator says goes to stderr; ncnn gets a code.
    extractor = net.create_extractor()
    extractor.input("x", ncnn.Mat(x[0]).clone())
    extractor.input("t", ncnn.Mat(np.zeros(4, np.float32)).clone())
    assert extractor.extract("y")[0] != 0
    print("well")
"""


def test_layers_of_ours_register_with_a_net_of_the_caller(tmp_path):
    """In a process of its own, since what a layer complains of goes to stderr."""
    code = f"FOLDER = {str(tmp_path)!r}\n" + textwrap.dedent(ROUTE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("well\n"), done.stderr
    assert "com_example_ModSigmoid_1" in done.stderr and "threshold" in done.stderr


def test_an_operator_that_is_not_here_is_named(tmp_path, many, monkeypatch):
    write_files(convert(one_node_model(many)), tmp_path / "many.param")
    registry.unregister(many)
    try:
        with pytest.raises(MissingOperatorError, match=r"test\.ncnn::Many:1: nothing defines it"):
            Loaded(tmp_path / "many.param")
        other = Operator("test.ncnn", "Many", "(x: f32[*S]) -> (y: f32[*S])")
        registry.register(other)
        with pytest.raises(MissingOperatorError, match=r"registered, .* in the model"):
            Loaded(tmp_path / "many.param")
        registry.unregister(other)
    finally:
        registry.register(many)


def test_a_package_without_room_is_said_to_be_so(tmp_path):
    """Versions before 2026 take ten registrations in a process."""

    class Full:
        def register_custom_layer(self, kind, create, destroy):
            raise RuntimeError("python version only support 10 custom layers now")

    gelu = of.load("opforge.ops:CustomGELU")[0]
    of.ncnn.convert(one_node_model(gelu), tmp_path / "net.param")
    with pytest.raises(UnsupportedError, match="no more kinds of layers in this process") as caught:
        of.ncnn.register(Full(), tmp_path / "net.param")
    assert "only support 10" in str(caught.value) and "the engine ncnn" in str(caught.value)


def test_functions_and_branches_that_are_decided_are_opened(agree):
    """A custom node stands in a function, another in a branch whose condition is a constant."""
    gelu, swish = (of.load(f"opforge.ops:{n}")[0] for n in ("CustomGELU", "Swish"))
    model = model_of(
        [("my.functions::Twice", "x", "a", {}), ("If", "c", "y", {})],
        {"x": ([1, 3, 5, 7], "f")},
        constants={"c": np.array(True)},
        imports=[DOMAIN, ("org.opforge", 1), ("my.functions", 1)],
    )
    branches = []
    for name in ("org.opforge::Swish", "Neg"):
        domain, _, plain = name.rpartition("::")
        node = helper.make_node(plain, ["a"], ["z"], domain=domain)
        result = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
        branches.append(helper.make_graph([node], plain, [], [result]))
    model.graph.node[1].attribute.extend(
        helper.make_attribute(n, g) for n, g in zip(("then_branch", "else_branch"), branches, strict=True)
    )
    body = [
        helper.make_node("CustomGELU", ["p"], ["q"], domain="com.example"),
        helper.make_node("Add", ["q", "q"], ["r"]),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(*DOMAIN)]
    model.functions.append(helper.make_function("my.functions", "Twice", ["p"], ["r"], body, opsets))
    x = draw((1, 3, 5, 7), low=-2, high=2)
    want = swish.reference(2 * gelu.reference(x.astype(np.float64))).astype(np.float32)
    kinds = agree(model, {"x": x}, want={"y": want})
    assert {"com_example_CustomGELU_1", "org_opforge_Swish_1"} <= set(kinds) and "If" not in kinds


def test_two_domains_and_versions_that_share_a_name_are_different_layers(agree, monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "off")  # the interpreter does
    made = [
        of.formula("test.one::Shift", since=1)(lambda x: x + 1),
        of.formula("test.one::Shift", since=3)(lambda x: x + 10),
        of.formula("test.two::Shift")(lambda x: x * 2),
    ]
    try:
        model = model_of(
            [("test.one::Shift", "x", "a", {}), ("test.two::Shift", "a", "b", {}), ("old::Old", "b", "y", {})],
            {"x": ([3, 5], "f")},
            imports=[("test.one", 3), ("test.two", 1), ("old", 1)],
        )
        body = [helper.make_node("Shift", ["p"], ["q"], domain="test.one")]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("test.one", 2)]
        model.functions.append(helper.make_function("old", "Old", ["p"], ["q"], body, opsets))
        x = draw((3, 5))
        kinds = agree(model, {"x": x}, want={"y": (x + 10) * 2 + 1})
        assert kinds[1:] == ["test_one_Shift_3", "test_two_Shift_1", "test_one_Shift_1"]
    finally:
        for operator in made:
            registry.unregister(operator)


@pytest.mark.parametrize(
    "node, shape, kind, version, words",
    [
        (("ClipSigmoid", "x", {"lo": "a"}), [3], "f", 1, "lo"),
        (("ClipSigmoid", "x", {"low": 0.5}), [3], "f", 1, "low"),
        (("CustomGELU", "x x", {}), [3], "f", 1, "inputs"),
        (("CustomGELU", "x", {}), [3], "q", 1, "dtype"),
        (("ModSigmoid", "x k", {}), [3, 5], "f", 1, "shapes do not broadcast"),
    ],
)
def test_a_node_that_does_not_fit_its_operator_is_said_to(node, shape, kind, version, words):
    of.load("opforge.ops")
    name, inputs, attributes = node
    model = model_of(
        [(f"com.example::{name}", inputs, "y", attributes)],
        {"x": (shape, kind)},
        constants={"k": np.zeros((4,), np.float32)},
        imports=[("com.example", version)],
    )
    with pytest.raises((ArgumentError, TypeError), match=words) as caught:
        convert(model)
    assert name in str(caught.value)


def test_a_version_before_the_first_is_named():
    late = of.formula("test.late::Shift", since=3)(lambda x: x + 1)
    try:
        model = model_of([("test.late::Shift", "x", "y", {})], {"x": ([3], "f")}, imports=[("test.late", 2)])
        with pytest.raises(MissingOperatorError, match="imports version 2, registered is it since 3"):
            convert(model)
    finally:
        registry.unregister(late)


def test_a_resize_to_one_element_that_counts_otherwise_is_refused():
    counted = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
    made = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **counted)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([made], "g", inputs, outputs, [numpy_helper.from_array(np.int64([1, 1, 3, 1]), "s")])
    with pytest.raises(UnsupportedError, match="to a size of 1, which takes the first element"):
        convert(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
