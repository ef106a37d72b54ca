"""Real models of the bench, made once under build/bench/models, and their inputs."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._exports import keyed
from opforge._files import whole_file

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
    path = keyed(OUT / f"{name.replace(' ', '_')}.onnx", __file__)
    if not path.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        _EXPORTS[name](path)
    return path


def minilm_module() -> Any:  # noqa: ANN401 - a torch module
    """Return MiniLM with CustomGELU in each layer, in evaluation mode."""
    from examples.demo import minilm

    encoder = minilm.SentenceEncoder()
    minilm.with_custom_gelu(encoder)
    return encoder.eval()


def _export_minilm(path: Path) -> None:
    import torch

    import opforge as of

    ids = torch.ones(2, 16, dtype=torch.int64)
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=512)}
    of.torch.export(
        minilm_module(),
        (ids, ids.clone()),
        path,
        dynamic_shapes=(shape, shape),
        input_names=["input_ids", "attention_mask"],
        output_names=["embedding"],
    )


def case_study_module() -> Any:  # noqa: ANN401 - a torch module
    """Return a linear layer and CustomGELU."""
    import torch

    import opforge.torch
    from opforge.ops import custom_gelu

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(768, 768), opforge.torch.Module(custom_gelu)).eval()


def _export_case_study(path: Path) -> None:
    import torch

    import opforge as of

    of.torch.export(
        case_study_module(),
        (torch.randn(4, 768),),
        path,
        dynamic_shapes=({0: torch.export.Dim("n")},),
        input_names=["x"],
        output_names=["y"],
    )


def _save(path: Path, nodes: list[Any], shapes: tuple[list[Any], list[Any]], weights: dict[str, Any]) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("xy", shapes, strict=True)]
    constants = [numpy_helper.from_array(array, key) for key, array in weights.items()]
    graph = helper.make_graph(nodes, path.stem, values[:1], values[1:], constants)
    with whole_file(path) as draft:
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(draft))


MLP = (64, 128, 128, 128, 10)


def _export_mlp(path: Path) -> None:
    from onnx import helper

    rng = np.random.default_rng(0)
    nodes, weights, value = [], {}, "x"
    for k, (rows, columns) in enumerate(pairwise(MLP)):
        weights[f"w{k}"] = (rng.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        weights[f"b{k}"] = rng.standard_normal(columns).astype(np.float32)
        last = k == len(MLP) - 2
        out = "y" if last else f"sum{k}"
        nodes.append(helper.make_node("Gemm", [value, f"w{k}", f"b{k}"], [out]))
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"value{k}"]))
        value = f"value{k}"
    _save(path, nodes, (["n", MLP[0]], ["n", MLP[-1]]), weights)


def _export_matmul(path: Path) -> None:
    from onnx import helper

    weights = {"w": np.random.default_rng(0).standard_normal((768, 768), np.float32)}
    _save(path, [helper.make_node("MatMul", ["x", "w"], ["y"])], (["n", 768], ["n", 768]), weights)


def _export_pass(path: Path) -> None:
    from onnx import helper

    nodes = [helper.make_node("Mul", ["x", "two"], ["double"]), helper.make_node("Add", ["double", "one"], ["y"])]
    _save(path, nodes, (["n"], ["n"]), {"two": np.float32([2]), "one": np.float32([1])})


def _export_smallest(path: Path) -> None:
    from onnx import helper

    _save(path, [helper.make_node("Add", ["x", "one"], ["y"])], ([1], [1]), {"one": np.float32([1])})


_EXPORTS = {
    "minilm": _export_minilm,
    "case study": _export_case_study,
    "mlp": _export_mlp,
    "matmul": _export_matmul,
    "pass": _export_pass,
    "smallest": _export_smallest,
}


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
    if name == "mlp":
        return {"x": rng.standard_normal((batch, MLP[0]), np.float32)}
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
            with whole_file(inlined) as draft:
                onnx.save(of.onnx.inline_functions(model), str(draft))
        path = inlined
    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    return core.compile_model(core.read_model(str(path)), "CPU", options)
