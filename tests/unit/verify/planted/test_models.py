"""Faults of models and libraries of others: each kind is planted, and reported in words that help."""

import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.errors import UnsupportedError
from opforge.ops import clip_sigmoid, custom_gelu
from opforge.verify import check, check_node
from opforge.verify.strangers import torch_operator

pytestmark = pytest.mark.planted
X = np.linspace(-3, 3, 12).reshape(3, 4)


def model_of(*nodes, imports=(("", 20), ("com.example", 1)), outputs=("y",)):
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", "M"]) for name in outputs]
    graph = helper.make_graph(list(nodes), "planted", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*i) for i in imports], ir_version=10)


def node(name="ClipSigmoid", domain="com.example", output="y", **attributes):
    return helper.make_node(name, ["x"], [output], domain=domain, **attributes)


def details(model):
    return [row.detail for row in check(model).failures]


def test_a_right_model_passes(tmp_path):
    report = check(model_of(node()))
    assert report.passed, report.failures
    assert {"registry", "shapes", "support", "parity"} <= {row.check for row in report.rows}


def test_domain_is_empty_or_not_imported():
    (text,) = details(model_of(node(domain="")))
    assert "ClipSigmoid" in text and "No Op registered" in text
    (text,) = details(model_of(node(), imports=[("", 20)]))
    assert "the model does not import the domain 'com.example'" in text
    assert "opforge.onnx.complete_model adds imports of registered operators" in text


def test_fault_inside_a_branch():
    inner = helper.make_graph(
        [node("ClipSigmoit", output="z")],
        "then",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", "M"])],
    )
    condition = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    texts = details(model_of(condition, branch))
    assert any("then_branch" in text and "did you mean com.example::ClipSigmoid?" in text for text in texts)


def test_every_unknown_operator_is_named_at_once():
    texts = details(model_of(node("Nothing", output="a"), node("CustomGelu"), outputs=("a", "y")))
    assert len(texts) == 2
    assert any("com.example::Nothing" in text for text in texts)
    assert any("did you mean com.example::CustomGELU?" in text for text in texts), "differs in one letter's case"


def test_attribute_of_another_type():
    (text,) = details(model_of(node(lo=1)))
    assert "lo" in text and "float" in text


@pytest.fixture(scope="module")
def small_bin(tmp_path_factory):
    path = tmp_path_factory.mktemp("bin") / "model.bin"
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 32], np.linspace(-1, 1, 128).astype(np.float32))
    graph = model_of(helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"]))
    graph.graph.initializer.append(weights)
    onnx.save(graph, path.with_suffix(".onnx"))
    of.compile(path.with_suffix(".onnx"), path)
    return path


def test_a_right_bin_passes(small_bin):
    report = check(small_bin, model=small_bin.with_suffix(".onnx"))
    assert report.passed, report.failures
    assert {"structure", "runs", "parity"} == {row.check for row in report.rows}


def test_damaged_bin(small_bin, tmp_path):
    content = small_bin.read_bytes()
    weights = content.index(np.float32(-1).tobytes())
    damages = {
        "cut": (content[: len(content) // 2], "header: the file is cut or too long"),
        "flipped": (content[:weights] + b"\x7f" + content[weights + 1 :], "weights"),
        "empty": (b"", "header"),
    }
    for name, (changed, word) in damages.items():
        path = tmp_path / f"{name}.bin"
        path.write_bytes(changed)
        report = check(path)
        (row,) = report.failures
        assert row.check == "structure"
        assert word in row.detail, (name, row.detail)


def compiled(folder, name, text):
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.compiler
def test_library_without_the_entry(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    library = compiled(tmp_path, "mute", "int nothing(void) { return 0; }\n")
    report = check_node("my.ops::Inverse", np.negative, [(X,)], library=library)
    (row,) = report.failures
    assert "mute.so exports no RegisterCustomOps" in row.detail
    newer = """
    struct base { const void* (*api)(unsigned); const char* (*version)(void); };
    struct api { void* (*create_status)(int, const char*); };
    void* RegisterCustomOps(void* options, const struct base* base) {
      const struct api* known = base->api(1);
      return base->api(9999) ? 0 : known->create_status(1, "this library needs API 9999");
    }
    """
    report = check_node("my.ops::Inverse", np.negative, [(X,)], library=compiled(tmp_path, "newer", newer))
    (row,) = report.failures
    assert "refuses the library" in row.detail and "this library needs API 9999" in row.detail
    assert "needs a newer ONNX Runtime, or has to ask for an older one" in row.detail


def test_node_that_the_library_does_not_know():
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    library = of.onnxruntime.library(custom_gelu)
    right = check_node("com.example::CustomGELU", custom_gelu.reference, [(X,)], library=library)
    assert right.passed, right.failures
    wrong = check_node("com.example::CustomGelu", custom_gelu.reference, [(X,)], library=library)
    text = next(row.detail for row in wrong.failures if row.check == "values")
    assert "ONNX Runtime does not take the node" in text and "CustomGelu" in text
    assert "compare domain, name, number of inputs, attributes and dtypes with what the library registers" in text
    half = check_node("com.example::CustomGELU", custom_gelu.reference, [(X,)], library=library, dtypes=["f32"],
                      tolerances={"f32": (1e-12, 1e-12)})  # fmt: skip
    assert "max |error|" in half.failures[0].detail, "values are compared"


@pytest.mark.compiler
@pytest.mark.torch
def test_extension_of_another_pytorch(tmp_path):
    pytest.importorskip("torch", reason="needs torch")
    text = "void _ZN3c1013removed_entryEv(void);\nvoid call(void) { _ZN3c1013removed_entryEv(); }\n"
    library = compiled(tmp_path, "old", text)
    with pytest.raises(UnsupportedError, match="the library does not load") as error:
        torch_operator("torch.ops.planted.old", library)
    assert "undefined symbol: _ZN3c1013removed_entryEv" in str(error.value)
    assert "it was built against another PyTorch than" in str(error.value)


def test_operators_of_the_package_are_sound():
    assert check(clip_sigmoid, "quick").passed
