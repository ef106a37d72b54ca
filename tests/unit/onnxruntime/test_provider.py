"""The execution provider: what it claims, what it computes, compiled parts of a graph."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import opforge as of
from opforge.bin.parts import compile_parts, find_parts
from opforge.errors import ArgumentError, CandidateError, UnsupportedError
from opforge.schema import registry
from opforge.verify import find_engine
from tests.unit.onnxruntime.conftest import FLOAT, make_model

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.compiler
DOMAIN = "com.example"
OURS = "OpforgeExecutionProvider"
VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])
needs_provider = pytest.mark.skipif(VERSION < (1, 23), reason="this ONNX Runtime takes no provider from a library")
needs_report = pytest.mark.skipif(VERSION < (1, 24), reason="this ONNX Runtime does not say who runs which node")


def ours(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, domain=DOMAIN, **attributes)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def layers():
    """MatMul + Add + CustomGELU + Relu, then MatMul + Softmax."""
    of.load("opforge.ops")
    weights = {"w": normal(5, 300), "b": normal(300, seed=1), "v": normal(300, 8, seed=2)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["u"]),
        ours("CustomGELU", ["u"], ["g"]),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return make_model(nodes, {"x": (FLOAT, ["N", 5])}, {"y": (FLOAT, None)}, ((DOMAIN, 1),), constants=constants)


def same(model, feeds, **options):
    """The provider's results, held against the custom operators'."""
    session = of.onnxruntime.session(model, **options)
    expected = of.onnxruntime.session(model).run(None, feeds)
    for got, right in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)
    return session


@needs_provider
def test_it_claims_our_nodes_and_leaves_the_others(layers):
    session = same(layers, {"x": normal(3, 5)}, provider=True)
    assert session.get_providers() == [OURS, "CPUExecutionProvider"]
    if VERSION >= (1, 24):
        placed = {part.nodes: part.provider for part in of.onnxruntime.placement(session)}
        assert placed[("com.example::CustomGELU",)] == OURS
        assert placed[("Softmax",)] == "CPUExecutionProvider"


@needs_provider
def test_equal_inputs_are_given_once_and_unread_outputs_not_at_all():
    of.load("opforge.ops")
    nodes = [helper.make_node("Abs", ["x"], ["a"]), ours("ModSigmoid", ["a", "a"], ["y"])]
    same(make_model(nodes, {"x": (FLOAT, ["N"])}, {"y": (FLOAT, None)}, ((DOMAIN, 1),)), {"x": normal(7)},
         provider=True)  # fmt: skip
    both = of.kernel(
        "test.ort::Both", "(x: T[n]) -> (sum: T[n], product: T[n])", types={"T": of.f32},
        sources=[__file__.replace("test_provider.py", "both.cc")], reference=lambda x: (x + x, x * x),
    )  # fmt: skip
    try:
        for read, right in ((0, [6, 8]), (1, [9, 16])):
            outputs = ["s", "p"]
            nodes = [
                helper.make_node("Both", ["x"], outputs, domain="test.ort"),
                helper.make_node("Neg", [outputs[read]], ["y"]),
            ]
            model = make_model(nodes, {"x": (FLOAT, [2])}, {"y": (FLOAT, [2])}, (("test.ort", 1),))
            session = of.onnxruntime.session(model, provider=True)
            assert (-session.run(None, {"x": np.array([3, 4], np.float32)})[0]).tolist() == right
    finally:
        registry.unregister(both)


@needs_provider
def test_in_a_branch():
    of.load("opforge.ops")
    yes = helper.make_graph([ours("CustomGELU", ["x"], ["t"])], "yes", [],
                            [helper.make_tensor_value_info("t", FLOAT, None)])  # fmt: skip
    no = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "no", [],
                           [helper.make_tensor_value_info("n", FLOAT, None)])  # fmt: skip
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)]
    model = make_model(nodes, {"x": (FLOAT, ["N"]), "c": (9, [])}, {"y": (FLOAT, ["N"])}, ((DOMAIN, 1),))
    for condition in (True, False):
        same(model, {"x": normal(5), "c": np.array(condition)}, provider=True)


@needs_provider
def test_attributes_optional_inputs_and_variadic_ones(hand):
    """The provider reads nodes by another way than a custom operator does: kinds of attributes, arity."""
    from opforge.engines.onnxruntime._provider import add_provider

    def run(node, inputs, outputs, feeds):
        model = make_model([node], inputs, outputs)
        options = ort.SessionOptions()
        options.register_custom_ops_library(str(of.onnxruntime.adapter_path()))
        add_provider(options)
        found = ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)
        for got, right in zip(found, hand(model).run(None, feeds), strict=True):
            np.testing.assert_array_equal(got, right)

    x = {"x": (FLOAT, [1])}
    given = {"i": -5, "f": 1e-3, "s": "grüße", "b": 0, "li": [7, 8, 9], "lf": [0.1, 2.0], "lb": [1, 1, 0]}
    for attributes in ({}, given, {"s": ""}):
        node = helper.make_node("Attributes", ["x"], ["y"], domain="test.hand", **attributes)
        run(node, x, {"y": (11, [16])}, {"x": np.ones(1, np.float32)})
    node = helper.make_node("AddBias", ["x", ""], ["y"], domain="test.hand")
    run(node, {"x": (FLOAT, ["N", 4])}, {"y": (FLOAT, ["N", 4])}, {"x": normal(5, 4)})
    node = helper.make_node("Total", ["x", "x", "z"], ["s", "l"], domain="test.hand")
    run(node, {"x": (FLOAT, [3]), "z": (FLOAT, [3])}, {"s": (FLOAT, [3]), "l": (FLOAT, [3])},
        {"x": normal(3), "z": normal(3, seed=1)})  # fmt: skip


@needs_provider
def test_an_unknown_attribute_is_refused(hand):
    from opforge.engines.onnxruntime._provider import add_provider

    node = helper.make_node("Chunks", ["x"], ["y"], domain="test.hand", grainn=3)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(of.onnxruntime.adapter_path()))
    add_provider(options)
    model = make_model([node], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])})
    with pytest.raises(Exception, match=r"(?s)test.hand::Chunks: unknown attribute.*expected: grain.*got: grainn"):
        ort.InferenceSession(model.SerializeToString(), options, enable_fallback=0)


# ---- compiled parts


def test_parts_are_products_with_what_is_fused_into_them(layers):
    (part,) = find_parts(layers)
    assert str(part) == "MatMul + Add + com.example::CustomGELU + Relu"
    assert (part.inputs, part.outputs) == (("x",), ("r",))


def test_a_value_that_others_read_ends_a_part(layers):
    model = onnx.ModelProto()
    model.CopyFrom(layers)
    model.graph.output.append(helper.make_tensor_value_info("u", FLOAT, None))
    assert find_parts(model) == [], "the sum is wanted outside, so the product is not fused into the formula"


@needs_provider
def test_a_compiled_part_runs_for_every_shape(layers):
    session = of.onnxruntime.session(layers, fuse=True)
    plain = of.onnxruntime.session(layers)
    for rows in (3, 1, 17, 0):
        feeds = {"x": normal(rows, 5, seed=rows)}
        np.testing.assert_allclose(session.run(None, feeds)[0], plain.run(None, feeds)[0], rtol=1e-4, atol=1e-6)


@needs_report
def test_the_report_names_the_nodes_of_a_part(layers):
    session = of.onnxruntime.session(layers, fuse=True)
    (part,) = [p for p in of.onnxruntime.placement(session) if p.provider == OURS]
    assert part.nodes[1:] == ("com.example::CustomGELU", "Relu")
    assert part.nodes[0] in ("Gemm", "MatMul"), "ONNX Runtime may have joined the product and the sum"


@needs_provider
def test_a_convolution_with_a_formula():
    of.load("opforge.ops")
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        ours("ClipSigmoid", ["c"], ["s"], lo=0.2),
        helper.make_node("Mul", ["s", "c"], ["y"]),
    ]
    constants = [numpy_helper.from_array(v, n) for n, v in (("w", normal(8, 3, 3, 3)), ("b", normal(8)))]
    model = make_model(nodes, {"x": (FLOAT, ["N", 3, 8, 8])}, {"y": (FLOAT, None)}, ((DOMAIN, 1),), constants=constants)
    session = same(model, {"x": normal(2, 3, 8, 8)}, fuse=True)
    if VERSION >= (1, 24):
        assert [p.provider for p in of.onnxruntime.placement(session)] == [OURS]


def test_parts_that_the_compiler_refuses_are_left_out(layers, tmp_path, monkeypatch):
    def refuse(model, path):
        raise UnsupportedError("no")

    monkeypatch.setattr("opforge.bin.parts.compile_model", refuse)
    assert compile_parts(layers, tmp_path) == []


@needs_provider
@pytest.mark.parametrize("last", [[], [helper.make_node("Relu", ["g"], ["r"])]])
def test_a_part_whose_inner_value_gets_another_reader_is_not_claimed(last):
    """ONNX Runtime makes one of two equal products, so that a value within a part is read outside of it."""
    of.load("opforge.ops")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"]),
        ours("CustomGELU", ["t"], ["g"]),
        *last,
        helper.make_node("Softmax", ["r" if last else "g"], ["y"]),
        helper.make_node("MatMul", ["x", "w"], ["again"]),
        helper.make_node("Neg", ["again"], ["z"]),
    ]
    constants = [numpy_helper.from_array(normal(5, 300), "w")]
    results = {"y": (FLOAT, None), "z": (FLOAT, None)}
    model = make_model(nodes, {"x": (FLOAT, ["N", 5])}, results, ((DOMAIN, 1),), constants=constants)
    assert len(find_parts(model)) == 1
    same(model, {"x": normal(3, 5)}, fuse=True)


# ---- errors


@needs_provider
def test_a_missing_folder_of_parts(layers, tmp_path):
    from opforge.engines.onnxruntime._session import open_session

    with pytest.raises(UnsupportedError, match="the folder of compiled parts is not there"):
        open_session(layers, provider=True, programs=tmp_path / "nowhere")


@needs_provider
def test_a_damaged_part(layers, tmp_path):
    from opforge.engines.onnxruntime._session import open_session

    (tmp_path / "part.bin").write_bytes(b"not a bin")
    with pytest.raises(UnsupportedError, match=r"(?s)part\.bin.*magic|not a \.bin|too short|file"):
        open_session(layers, provider=True, programs=tmp_path)


def test_provider_chooses_the_providers(layers):
    for options in ({"providers": ["CPUExecutionProvider"]}, {"bodies": True}):
        with pytest.raises(
            ArgumentError, match=f"(?s)provider=True chooses who runs what itself.*{next(iter(options))}="
        ):
            of.onnxruntime.session(layers, provider=True, **options)


def test_a_session_without_the_record_has_no_report(layers):
    with pytest.raises(UnsupportedError, match=r"(?s)does not say who runs which node.*1\.24 or newer"):
        of.onnxruntime.placement(of.onnxruntime.session(layers))


def test_an_old_onnx_runtime_says_so(layers, monkeypatch):
    from opforge.engines.onnxruntime import _provider

    monkeypatch.setattr(ort, "__version__", "1.22.1")
    _provider._devices.cache_clear()
    with pytest.raises(
        UnsupportedError, match=r"(?s)takes no execution provider from a library.*1\.23 or newer.*1\.22\.1"
    ):
        of.onnxruntime.session(layers, provider=True)
    assert find_engine("onnxruntime").availability().ok
    monkeypatch.setattr("opforge.engines.onnxruntime._engine._version", lambda: "1.22.1")
    with pytest.raises(CandidateError, match=r"(?s)version 1\.22\.1 is too old, 1\.23 is needed.*pip install"):
        find_engine("onnxruntime-provider")
