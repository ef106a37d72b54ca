"""Real models of the bench, made once under build/bench/models, and their inputs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).resolve().parents[2] / "build" / "bench" / "models"
OCR = {
    "ppocr det": ("ch_PP-OCRv4_det_infer.onnx", (1, 3, 640, 640)),
    "ppocr rec": ("ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
    "ppocr cls": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192)),
}


def onnx_path(name: str) -> Path:
    """Return the ONNX file of a model; MiniLM and the case study are exported on first use."""
    if name in OCR:
        spec = importlib.util.find_spec("rapidocr_onnxruntime")
        assert spec is not None and spec.origin is not None
        return Path(spec.origin).parent / "models" / OCR[name][0]
    path = OUT / f"{name.replace(' ', '_')}.onnx"
    if not path.exists():
        {"minilm": _export_minilm, "case study": _export_case_study}[name](path)
    return path


def _export_minilm(path: Path) -> None:
    import torch

    import opforge as of
    from examples.demo import minilm

    encoder = minilm.SentenceEncoder()
    minilm.with_custom_gelu(encoder)
    ids = torch.ones(2, 16, dtype=torch.int64)
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    of.torch.export(
        encoder.eval(),
        (ids, ids.clone()),
        path,
        dynamic_shapes=(shape, shape),
        input_names=["input_ids", "attention_mask"],
        output_names=["embedding"],
    )


def _export_case_study(path: Path) -> None:
    import torch

    import opforge as of
    import opforge.torch
    from opforge.ops import custom_gelu

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(768, 768), opforge.torch.Module(custom_gelu))
    of.torch.export(
        module,
        (torch.randn(4, 768),),
        path,
        dynamic_shapes=({0: torch.export.Dim("n")},),
        input_names=["x"],
        output_names=["y"],
    )


def bin_path(name: str) -> Path:
    """Return the compiled model; compiled again when the ONNX file or the library is newer."""
    import opforge as of
    from opforge import _paths

    source = onnx_path(name)
    path = OUT / f"{name.replace(' ', '_')}.bin"
    newest = max(source.stat().st_mtime, _paths.runtime_library().stat().st_mtime)
    if not path.exists() or path.stat().st_mtime < newest:
        OUT.mkdir(parents=True, exist_ok=True)
        of.compile(source, path)
    return path


def inputs(name: str, batch: int = 1, length: int = 128) -> dict[str, np.ndarray[Any, Any]]:
    """Return inputs of a model."""
    rng = np.random.default_rng(0)
    if name == "minilm":
        ids = rng.integers(1000, 20000, (batch, length))
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    if name == "case study":
        return {"x": rng.standard_normal((batch, 768), np.float32)}
    return {"x": rng.standard_normal(OCR[name][1], np.float32)}


def openvino_model(name: str, threads: int) -> Any:  # noqa: ANN401 - openvino.CompiledModel
    """Compile for OpenVINO with f32 arithmetic; our functions are inlined, since its front end does not read them."""
    import onnx
    import openvino

    import opforge as of

    path = onnx_path(name)
    model = onnx.load(str(path))
    if model.functions:
        inlined = OUT / f"{name.replace(' ', '_')}.inlined.onnx"
        if not inlined.exists():
            onnx.save(of.onnx.inline_functions(model), str(inlined))
        path = inlined
    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    return core.compile_model(core.read_model(str(path)), "CPU", options)
