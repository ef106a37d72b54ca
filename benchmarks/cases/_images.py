"""Image models of the bench: onnx's light networks and a MobileNetV3 with random weights, made under build/bench."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._exports import keyed
from opforge._files import whole_file

OUT = Path(__file__).resolve().parents[2] / "build" / "bench" / "models"
LIGHT = {"resnet50": "light_resnet50.onnx", "squeezenet": "light_squeezenet.onnx"}
NAMES = (*LIGHT, "mobilenet")
SIZE, CLASSES = 224, 1000

# MobileNetV3-Large: kernel, expanded channels, output channels, squeeze-excite, activation, stride.
_BLOCKS = (
    (3, 16, 16, False, "Relu", 1),
    (3, 64, 24, False, "Relu", 2),
    (3, 72, 24, False, "Relu", 1),
    (5, 72, 40, True, "Relu", 2),
    (5, 120, 40, True, "Relu", 1),
    (5, 120, 40, True, "Relu", 1),
    (3, 240, 80, False, "HardSwish", 2),
    (3, 200, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 184, 80, False, "HardSwish", 1),
    (3, 480, 112, True, "HardSwish", 1),
    (3, 672, 112, True, "HardSwish", 1),
    (5, 672, 160, True, "HardSwish", 2),
    (5, 960, 160, True, "HardSwish", 1),
    (5, 960, 160, True, "HardSwish", 1),
)


def onnx_path(name: str) -> Path:
    """Return the ONNX file of a model with a symbolic batch; made on first use."""
    import onnx

    path = keyed(OUT / f"{name}.onnx", __file__)
    if not path.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        model = _light(LIGHT[name]) if name in LIGHT else _mobilenet()
        onnx.checker.check_model(model)
        with whole_file(path) as draft:
            onnx.save(model, str(draft))
    return path


def bin_path(name: str) -> Path:
    """Return the compiled model; compiled again when the ONNX file or the library is newer."""
    import opforge as of
    from opforge import _paths

    source, path = onnx_path(name), OUT / f"{name}.bin"
    newest = max(source.stat().st_mtime, _paths.runtime_library().stat().st_mtime)
    if not path.exists() or path.stat().st_mtime < newest:
        of.compile(source, path)
    return path


def inputs(name: str, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return a batch of images."""
    import onnx

    first = onnx.load(str(onnx_path(name))).graph.input[0].name
    return {first: np.random.default_rng(1).standard_normal((batch, 3, SIZE, SIZE), np.float32)}


def openvino_model(name: str, batch: int, threads: int) -> Any:  # noqa: ANN401 - openvino.CompiledModel
    """Compile for OpenVINO with f32 arithmetic and, as it prefers, a fixed shape."""
    import openvino

    core = openvino.Core()
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    model = core.read_model(str(onnx_path(name)))
    model.reshape([batch, 3, SIZE, SIZE])
    return core.compile_model(model, "CPU", options)


def _light(file: str) -> Any:  # noqa: ANN401 - onnx.ModelProto
    """Load a light network and give it weights: it makes its own, all equal, by ConstantOfShape."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / file))
    graph = model.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    fillers = [n for n in graph.node if n.op_type == "ConstantOfShape"]
    rng = np.random.default_rng(0)
    made = []
    for node in fillers:
        shape = tuple(int(d) for d in shapes[node.input[0]])
        made.append(numpy_helper.from_array(_values(rng, node.output[0], shape), node.output[0]))
        graph.node.remove(node)
    spent = {n.input[0] for n in fillers} - {i for n in graph.node for i in n.input}
    kept = [t for t in graph.initializer if t.name not in spent]
    for tensor in kept:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.int64 and array.size == 2:  # the shape before the classifier: of any batch
            tensor.CopyFrom(numpy_helper.from_array(np.array([-1, array[1]]), tensor.name))
        elif array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(_values(rng, tensor.name, array.shape), tensor.name))
    images = [i for i in graph.input if len(i.type.tensor_type.shape.dim) == 4 and i.name not in shapes]
    images = [i for i in images if i.type.tensor_type.shape.dim[1].dim_value == 3]
    del graph.initializer[:], graph.input[:], graph.value_info[:]
    model.ir_version = max(model.ir_version, 8)  # initialisers need not be inputs
    graph.initializer.extend(kept + made)
    graph.input.extend(images[:1])
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    return model


def _values(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """He-scaled weights, smaller ones before a softmax; statistics and biases that keep the signal's size."""
    if len(shape) > 1:
        spread = np.sqrt(2 / np.prod(shape[1:])) * (0.1 if shape[0] == CLASSES else 1)
        return (rng.standard_normal(shape) * spread).astype(np.float32)
    if name.endswith(("_riv_0", "_var_0", "_bn_s_0")):
        return rng.uniform(0.4, 0.8, shape).astype(np.float32)
    return (rng.standard_normal(shape) * 0.05).astype(np.float32)


class _Net:
    """Writes a network node by node."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.rng = np.random.default_rng(0)

    def add(self, op: str, *given: str, **attributes: object) -> str:
        """Append a node and return its output."""
        from onnx import helper

        out = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(given), [out], out, **attributes))
        return out

    def weight(self, *shape: int) -> str:
        """Make a weight and return its name."""
        from onnx import numpy_helper

        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(_values(self.rng, name, shape), name))
        return name

    def conv(self, x: str, inner: int, out: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        """Append a convolution whose normalisation was folded, as exporters do."""
        return self.add(
            "Conv",
            x,
            self.weight(out, inner // group, kernel, kernel),
            self.weight(out),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=group,
        )


def _mobilenet() -> Any:  # noqa: ANN401 - onnx.ModelProto
    from onnx import TensorProto, helper

    net, channels = _Net(), 16
    x = net.add("HardSwish", net.conv("image", 3, channels, 3, 2))
    for kernel, wide, out, squeeze, activation, stride in _BLOCKS:
        y = net.add(activation, net.conv(x, channels, wide)) if wide != channels else x
        y = net.add(activation, net.conv(y, wide, wide, kernel, stride, wide))
        if squeeze:
            narrow = (wide // 4 + 7) // 8 * 8
            gate = net.add("Relu", net.conv(net.add("GlobalAveragePool", y), wide, narrow))
            y = net.add("Mul", y, net.add("HardSigmoid", net.conv(gate, narrow, wide), alpha=1 / 6, beta=0.5))
        y = net.conv(y, wide, out)
        x = net.add("Add", x, y) if stride == 1 and channels == out else y
        channels = out
    x = net.add("GlobalAveragePool", net.add("HardSwish", net.conv(x, channels, 960)))
    x = net.add("Flatten", x)
    x = net.add("HardSwish", net.add("Gemm", x, net.weight(1280, 960), net.weight(1280), transB=1))
    net.add("Gemm", x, net.weight(CLASSES, 1280), net.weight(CLASSES), transB=1)
    net.nodes[-1].output[0] = "scores"
    graph = helper.make_graph(
        net.nodes,
        "mobilenet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", CLASSES])],
        net.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
