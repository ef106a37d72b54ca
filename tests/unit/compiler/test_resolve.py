"""Where the meaning of custom nodes comes from, and what is said when there is none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.bin import compiler
from opforge.bin.lowering import coverage
from opforge.bin.lowering._generated.kernels import KERNELS
from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.schema import registry
from tests.unit.compiler.graphs import compiled, model, node, ops, same
from tests.unit.compiler.models import case_study, gelu_function
from tests.unit.compiler.program_reference import Runner

RNG = np.random.default_rng(9)
DOMAIN = "test.compiler"


def _body(name, factor=1.0, domain=DOMAIN):
    nodes = [
        helper.make_node("Constant", [], ["f"], value_float=factor),
        helper.make_node("Sin", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "f"], ["y"]),
    ]
    return helper.make_function(domain, name, ["x"], ["y"], nodes, [helper.make_opsetid("", 22)])


def _custom(name="Wave", functions=(), domain=DOMAIN, version=1, **attributes):
    return model(
        [node(name, "x", "y", domain=domain, **attributes)],
        {"x": ["N"]},
        imports=[helper.make_opsetid(domain, version)],
        functions=list(functions),
    )


@pytest.fixture
def wave():
    @of.formula(f"{DOMAIN}::Wave")
    def wave(x, *, gain: float = 1.0):
        return gain * of.sin(x)

    yield wave
    registry.unregister(wave)


X = RNG.standard_normal(20).astype(np.float32)


def test_registered_operator_without_a_body(wave):
    program, report = compiled(_custom(gain=2.5))
    assert ops(program) == ["Formula"]
    assert report.custom == {f"{DOMAIN}::Wave": "formula bytecode in 1 nodes"}
    np.testing.assert_allclose(Runner(program).run({"x": X})["y"], 2.5 * np.sin(X), rtol=1e-6)


def test_registered_operator_fuses_into_its_producer():
    program, report = same(case_study(), {"x": RNG.standard_normal((3, 768)).astype(np.float32)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == ["MatMul"]
    assert report.fused == {"MatMul + com.example::CustomGELU": 1}


def test_body_of_an_unknown_operator_is_inlined():
    program, report = same(_custom("Ripple", [_body("Ripple", 3.0)]), {"x": X})
    assert report.fused == {"Sin + Mul": 1}
    assert report.custom == {}
    assert ops(program) == ["Formula"]


def test_agreeing_body_is_dropped(wave):
    _, report = compiled(_custom(functions=[_body("Wave")]))
    assert report.custom
    assert not report.warnings


def test_disagreeing_body_is_an_error(wave):
    with pytest.raises(ArgumentError, match="body and the registered operator disagree") as caught:
        compiled(_custom(functions=[_body("Wave", 1.5)]))
    text = str(caught.value)
    for part in (f"{DOMAIN}::Wave", "results differ by", 'operators="registry"', 'operators="body"'):
        assert part in text


@pytest.mark.parametrize(("choice", "factor"), [("registry", 1.0), ("body", 1.5)])
def test_choice_between_body_and_registry(wave, choice, factor):
    program, report = compiled(_custom(functions=[_body("Wave", 1.5)]), operators=choice)
    np.testing.assert_allclose(Runner(program).run({"x": X})["y"], factor * np.sin(X), rtol=1e-6)
    assert f"taken: the {choice}" in report.warnings[0]


def test_recorded_hash_decides_without_evaluation(wave):
    good, bad = _body("Wave"), _body("Wave")
    good.metadata_props.add(key="opforge.schema_hash", value=wave.schema_hash)
    compiled(_custom(functions=[good]))
    bad.metadata_props.add(key="opforge.schema_hash", value="0" * 64)
    with pytest.raises(ArgumentError, match="hash 000000000000 in the model"):
        compiled(_custom(functions=[bad]))


def test_unknown_choice():
    with pytest.raises(ArgumentError, match=r"compile\(operators=\)"):
        compiled(_custom(functions=[_body("Wave")]), operators="both")


def test_all_missing_operators_at_once():
    nodes = [
        node("CustomGelu", "x", "a", domain="com.example"),
        node("Nothing", "a", "b", domain=DOMAIN),
        node("Nothing", "b", "y", domain=DOMAIN),
    ]
    imports = [helper.make_opsetid("com.example", 1), helper.make_opsetid(DOMAIN, 3)]
    with pytest.raises(MissingOperatorError) as caught:
        compiled(model(nodes, {"x": ["N"]}, imports=imports))
    text = str(caught.value)
    near = "nearest: com.example::CustomGELU:1"
    assert f"com.example::CustomGelu:1 (1 node: CustomGelu_a): nothing defines it; {near}" in text
    assert f"{DOMAIN}::Nothing:3 (2 nodes: Nothing_b, Nothing_y): nothing defines it" in text


def test_missing_operator_inside_a_body():
    body = helper.make_function(
        DOMAIN,
        "Outer",
        ["x"],
        ["y"],
        [helper.make_node("Inner", ["x"], ["y"], domain=DOMAIN)],
        [helper.make_opsetid(DOMAIN, 1)],
    )
    with pytest.raises(MissingOperatorError, match=f"{DOMAIN}::Inner"):
        compiled(_custom("Outer", [body]))


def test_all_unsupported_nodes_at_once():
    """Custom and standard ones, in the main graph, in a branch, and in the body of a function."""
    branch = helper.make_graph(
        [helper.make_node("ImageDecoder", ["x"], ["s"], name="inside")],
        "branch",
        [],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, None)],
    )
    body = helper.make_function(
        DOMAIN, "Outer", ["x"], ["y"], [node("ImageDecoder", "x", "y")], [helper.make_opsetid("", 22)]
    )
    nodes = [
        node("Sofmax", "x", "a"),
        node("Outer", "a", "b", domain=DOMAIN),
        node("ZipMap", "b", "c", domain="ai.onnx.ml"),
        node("If", "flag", "d", then_branch=branch, else_branch=branch),
        node("Nothing", "c", "e", domain=DOMAIN),
        node("ImageDecoder", "d", "y"),
        node("Identity", "e", "z"),
    ]
    inputs = {"x": [4, 4], "flag": (TensorProto.BOOL, [])}
    imports = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("ai.onnx.ml", 3)]
    with pytest.raises(MissingOperatorError) as caught:
        compiled(model(nodes, inputs, imports=imports, functions=[body]))
    text = str(caught.value)
    assert "neither a registered operator nor a body, or no kernel" in text
    assert "Sofmax (1 node: Sofmax_a): ONNX has no operator of this name; nearest: Softmax" in text
    assert f"ai.onnx.ml::ZipMap (1 node: ZipMap_c): {coverage.REASONS['ai.onnx.ml']}" in text
    assert "ImageDecoder (4 nodes: " in text
    assert "inside, inside" in text
    assert "codecs of image files are outside the runtime" in text
    assert f"{DOMAIN}::Nothing:1 (1 node: Nothing_e): nothing defines it" in text


def test_nodes_whose_types_or_versions_have_no_kernel(monkeypatch):
    monkeypatch.setitem(KERNELS, ("", "Hardmax"), ((30, 40),))
    nodes = [node("Hardmax", "x", "h"), node("Hardmax", "h", "y"), node("Identity", "z", "w")]
    with pytest.raises(UnsupportedError) as caught:
        inputs = {"x": [4, 4], "z": (TensorProto.COMPLEX64, [2])}
        mixed = model(nodes, inputs, outputs="y w")
        mixed.graph.output[1].type.tensor_type.elem_type = TensorProto.COMPLEX64
        compiled(mixed, require_kernels=True)
    text = str(caught.value)
    assert "Hardmax (2 nodes: Hardmax_h, Hardmax_y): the runtime has no kernel for its version 13" in text
    assert "COMPLEX64 (2 nodes: z, w): the runtime has no tensors of this type" in text


def test_every_operator_has_a_server_or_a_reason():
    names = [s.name for s in onnx.defs.get_all_schemas() if not s.domain and not s.deprecated]
    assert len(names) > 190
    for name in names:
        assert coverage.served_by(name) or coverage.reason("", name)
    assert coverage.served_by("Softmax") == "a kernel of the runtime"
    assert coverage.served_by("ImageDecoder") is None


@pytest.mark.parametrize(("name", "value"), [("target", "gpu"), ("precision", "int8")])
def test_unknown_target_and_precision(name, value):
    with pytest.raises(UnsupportedError, match=rf"unknown {name}(.|\n)*got: '{value}'"):
        compiled(_custom(functions=[_body("Wave")]), **{name: value})


def test_kernel_operator_is_required_from_its_library():
    kinds = {
        "values": ["nnz"],
        "indices": (TensorProto.INT64, ["nnz"]),
        "indptr": (TensorProto.INT64, ["m1"]),
        "dense": [8, 4],
    }
    operator = next(o for o in of.operators().values() if o.name == "SparseMatMul")
    proto = model(
        [node("SparseMatMul", "values indices indptr dense", "y", domain=operator.domain)],
        kinds,
        imports=[helper.make_opsetid(operator.domain, 1)],
    )
    program, report = compiled(proto)
    (row,) = program.required
    assert (row.domain, row.name, row.version) == (operator.domain, "SparseMatMul", 1)
    assert row.schema_hash == operator.schema_hash
    assert row.signature == str(operator.signature)
    assert report.custom == {operator.key: f"kernel of library {row.library}"}
    assert program.graphs[0].nodes[0].domain == operator.domain


def test_source_stays_untouched():
    proto = case_study()
    before = proto.SerializeToString(deterministic=True)
    compiled(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_metadata():
    proto = case_study()
    proto.metadata_props.add(key="author", value="somebody")
    program, _ = compiled(proto)
    assert program.metadata["model.author"] == "somebody"
    assert len(program.metadata["source_sha256"]) == 64
    assert program.metadata["compiler"].startswith("opforge ")


def test_external_data(tmp_path):
    proto = case_study()
    path = tmp_path / "model.onnx"
    onnx.save(case_study(), str(path), save_as_external_data=True, location="weights.bin", size_threshold=16)
    a, b = compiled(proto)[0], compiled(path)[0]
    assert [np.asarray(v.data).tobytes() for v in a.values if v.data is not None] == [
        np.asarray(v.data).tobytes() for v in b.values if v.data is not None
    ]


def test_missing_external_data(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(case_study(), str(path), save_as_external_data=True, location="weights.bin", size_threshold=16)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ArgumentError, match="external data does not exist") as caught:
        compiled(path)
    assert "weights.bin" in str(caught.value)


def test_bad_files(tmp_path):
    with pytest.raises(ArgumentError, match="does not exist"):
        compiled(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"not a model at all")
    with pytest.raises(ArgumentError, match="not an ONNX model"):
        compiled(tmp_path / "bad.onnx")


def test_contradicting_model():
    proto = model([node("MatMul", "x w", "y")], {"x": ["N", 5]}, {"w": np.zeros((4, 3), np.float32)})
    with pytest.raises(ArgumentError, match=r"node 'MatMul_y' \(MatMul\): the model contradicts itself"):
        compiled(proto)


def test_failed_compile_leaves_no_file(tmp_path):
    out = tmp_path / "out.bin"
    with pytest.raises(MissingOperatorError):
        compiler.compile(_custom("Absent"), out)
    assert list(tmp_path.iterdir()) == []


def test_gelu_function_is_the_registered_one():
    proto = model(
        [node("CustomGELU", "x", "y", domain="com.example")],
        {"x": ["N"]},
        imports=[helper.make_opsetid("com.example", 1)],
        functions=[gelu_function()],
    )
    same(proto, {"x": X}, rtol=1e-4)
