"""Real models: the compiled program, run by the runtime and by the reference of programs, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.unit.compiler import models
from tests.unit.compiler.graphs import compiled, native, ops
from tests.unit.compiler.program_reference import Runner

pytestmark = pytest.mark.models
ort = pytest.importorskip("onnxruntime")


def _image(height, width, text="Hello 2026"):
    """Black text on white, normalised."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    draw.text((4, height // 5), text, fill="black", font=ImageFont.load_default(height // 2))
    data = np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 255
    return np.ascontiguousarray((data - 0.5) / 0.5)


def _sentences(batch, length):
    rng = np.random.default_rng(batch * 100 + length)
    mask = np.ones((batch, length), np.int64)
    mask[-1, length - length // 3 :] = 0
    ids = rng.integers(1000, 30000, (batch, length))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def _expected(model: Any, feeds):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def _compare(model, program, feeds, tolerance):
    expected = _expected(model, feeds)
    for got in (Runner(program).run(feeds), native(program, feeds)):
        for name, want in expected.items():
            assert got[name].shape == want.shape
            assert np.abs(got[name] - want).max() <= tolerance, name


def test_detection():
    program, report = compiled(models.ocr("det"))
    assert report.conversions == []
    assert report.algorithms == {"first": 1, "depthwise": 14, "direct": 42, "winograd": 5, "deconvolution": 2}
    assert report.fused["Conv + affine_hardswish"] == 24
    assert sum(n.op == "Formula" for n in program.graphs[0].nodes) == 10  # the gates of squeeze and excitation
    feeds = {"x": _image(96, 224)}
    assert _expected(models.ocr("det"), feeds)["sigmoid_0.tmp_0"].max() > 0.5
    _compare(models.ocr("det"), program, feeds, 1e-4)


def test_recognition():
    program, report = compiled(models.ocr("rec"))
    assert report.fused["Conv + affine_hardswish"] == 28
    assert len(report.conversions) == 3
    assert ops(program).count("Attention") == 2
    _compare(models.ocr("rec"), program, {"x": _image(48, 163)}, 5e-5)


def test_classification():
    program, report = compiled(models.ocr("cls"))
    assert report.fused["Conv + residual"] == 7
    assert report.conversions == ["c16 -> plain: pool2d_10.tmp_0"]
    feeds = {"x": np.concatenate([_image(48, 192), _image(48, 192)[:, :, ::-1, ::-1]])}
    _compare(models.ocr("cls"), program, feeds, 2e-6)


@pytest.mark.parametrize("opset", [18, 20])
def test_minilm(opset):
    program, report = compiled(models.minilm(opset))
    assert report.fused["MatMul + Gelu"] == 6
    assert ops(program).count("Attention") == 6
    assert ops(program).count("MatMul") == 24
    if opset == 18:
        _compare(models.minilm(opset), program, _sentences(3, 12), 1e-5)


def test_minilm_with_products_of_bf16():
    """Every product with a constant matrix takes operands of bf16, and the embedding stays close."""
    feeds = _sentences(3, 12)
    exact = native(compiled(models.minilm(18))[0], feeds)
    program, report = compiled(models.minilm(18), precision="bf16")
    products = [n for n in program.graphs[0].nodes if n.op == "MatMul"]
    assert [n.attributes.get("bf16_operands") for n in products] == [1] * 24
    assert report.conversions[-1].startswith("weights f32 -> bf16: 24 tensors")
    for name, got in native(program, feeds).items():
        want = exact[name]
        assert 0 < np.abs(got - want).max() < 0.02 * np.abs(want).max()
        assert (got * want).sum() / np.sqrt((got**2).sum() * (want**2).sum()) > 0.9998


def test_minilm_with_custom_operator():
    program, report = compiled(models.minilm_custom())
    assert report.custom == {"com.example::CustomGELU": "formula bytecode in 6 nodes"}
    assert report.fused["MatMul + com.example::CustomGELU"] == 6
    _compare(models.minilm_custom(), program, _sentences(2, 9), 1e-5)


def test_minilm_by_the_bodies():
    program, report = compiled(models.minilm_custom(), operators="body")
    assert report.custom == {}
    assert report.fused["MatMul + Gelu"] == 6
    _compare(models.minilm_custom(), program, _sentences(2, 9), 1e-5)


def test_case_study():
    program, report = compiled(models.case_study())
    assert report.fused == {"MatMul + com.example::CustomGELU": 1}
    feeds = {"x": np.random.default_rng(1).standard_normal((5, 768)).astype(np.float32)}
    _compare(models.case_study(), program, feeds, 1e-5)
