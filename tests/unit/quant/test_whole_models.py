"""Real models as ONNX Runtime's quantiser writes them, against ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opforge as of
from opforge.bin.format import read
from tests.unit.compiler import models

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

Feeds = dict[str, np.ndarray]


class Reader(quantization.CalibrationDataReader):
    """Gives a few inputs to the calibration."""

    def __init__(self, feeds: list[Feeds]) -> None:
        self._feeds: Iterator[Feeds] = iter(feeds)

    def get_next(self) -> Feeds | None:
        return next(self._feeds, None)


def both(model: Path, folder: Path, feeds: Feeds) -> tuple[Counter[str], np.ndarray, np.ndarray]:
    """Operators of the program, its first result and ONNX Runtime's."""
    of.compile(model, folder / "m.bin")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    peer = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    operators = Counter(n.op for n in read(folder / "m.bin").program.graphs[0].nodes)
    got: Any = next(iter(of.Session(folder / "m.bin").run(feeds).values()))
    return operators, got, peer.run(None, feeds)[0]


def test_a_static_image_model(tmp_path: Path) -> None:
    """PP-OCR's classifier, every operator between conversions; its output is quantised to steps of 1/255."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    newer = onnx.version_converter.convert_version(onnx.load(models.ocr("cls")), 13)
    onnx.save(newer, tmp_path / "newer.onnx")
    quant_pre_process(str(tmp_path / "newer.onnx"), str(tmp_path / "plain.onnx"), skip_symbolic_shape=True)
    rng = np.random.default_rng(0)
    inputs = [{"x": rng.standard_normal((1, 3, 48, 192), np.float32)} for _ in range(2)]
    quantization.quantize_static(
        str(tmp_path / "plain.onnx"),
        str(tmp_path / "q.onnx"),
        Reader(inputs),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
    )
    operators, got, wanted = both(tmp_path / "q.onnx", tmp_path, inputs[0])
    assert operators["IntegerConv"] == 53
    assert operators["IntegerMatMul"] == 1
    assert operators["Conv"] == operators["DequantizeLinear"] == 0
    assert operators["IntegerAdd"] > 5
    assert operators["Formula"] <= 4  # around what has no kernel on bytes
    np.testing.assert_allclose(got, wanted, atol=1.1 * 2 / 255)  # two steps: flips of earlier layers add up


def test_a_dynamic_language_model(tmp_path: Path) -> None:
    """MiniLM with weights of 8 bits: the activations' scales are found in each run."""
    quantization.quantize_dynamic(
        str(models.minilm()), str(tmp_path / "q.onnx"), weight_type=quantization.QuantType.QInt8
    )
    rng = np.random.default_rng(0)
    shape = (1, 16)
    feeds = {
        "input_ids": rng.integers(1000, 20000, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }
    operators, got, wanted = both(tmp_path / "q.onnx", tmp_path, feeds)
    assert operators["IntegerMatMul"] == 36
    assert operators["MatMulInteger"] == 0
    np.testing.assert_allclose(got, wanted, atol=1e-4)
    assert (tmp_path / "m.bin").stat().st_size < 1.05 * (tmp_path / "q.onnx").stat().st_size
