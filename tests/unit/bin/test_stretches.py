"""Steps that run a few images at a time give the bits of steps that run the whole batch, on any number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import opforge as of
from tests.unit.kernels import graphs

SIDE = 48
RNG = np.random.default_rng(5)


class Net:
    """Collects nodes and weights."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def add(self, op: str, *given: str, **attributes: object) -> str:
        """Append a node and return its output."""
        out = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(given), [out], **attributes))
        return out

    def conv(self, x: str, inner: int, out: int, kernel: int = 3, stride: int = 1, group: int = 1) -> str:
        """Append a convolution with random weights."""
        shape, name = (out, inner // group, kernel, kernel), f"w{len(self.weights)}"
        values = RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return self.add("Conv", x, name, strides=[stride] * 2, pads=[kernel // 2] * 4, group=group)

    def model(self, outputs: Sequence[str]) -> ModelProto:
        """Return the model with a batch of any size."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])
        outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", [x], outs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def residual(net: Net) -> list[str]:
    """Residuals, a halved image, and a result in the middle that is an output and is read later."""
    x = net.add("Relu", net.conv("x", 3, 32))
    y = net.add("Relu", net.conv(x, 32, 32))
    x = net.add("Relu", net.add("Add", net.conv(y, 32, 32, 1), x))
    middle = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = net.add("Relu", net.conv(middle, 32, 64, 3, 2))
    return [net.add("GlobalAveragePool", net.conv(y, 64, 40)), middle]


def concatenated(net: Net) -> list[str]:
    """Parts that are written into one result, images that are doubled, and channels that are shuffled."""
    x = net.add("Relu", net.conv("x", 3, 32, 3, 2))
    narrow = net.add("Relu", net.conv(x, 32, 16, 1))
    wide = net.add("Concat", net.conv(narrow, 16, 32, 1), net.conv(narrow, 16, 32, 3), axis=1)
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    net.weights.append(scales)
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    up = net.add("Resize", wide, "", "scales", **how)
    joined = net.add("Concat", net.conv(up, 64, 20, 1), net.conv(up, 64, 12), axis=1)
    return [net.add("DepthToSpace", joined, blocksize=2)]


def gated(net: Net) -> list[str]:
    """Depthwise convolutions and a gate per image and channel."""
    x = net.add("HardSwish", net.conv("x", 3, 24))
    y = net.add("HardSwish", net.conv(x, 24, 24, 5, 1, 24))
    gate = net.add("Sigmoid", net.conv(net.add("GlobalAveragePool", y), 24, 24, 1))
    y = net.add("Tanh", net.add("Mul", y, gate))
    return [net.add("Flatten", net.add("Sub", net.conv(y, 24, 24, 1), x))]


@pytest.mark.parametrize("build", [residual, concatenated, gated])
def test_bits_do_not_depend_on_how_a_batch_is_run(build, tmp_path: Path):
    net = Net()
    outputs = build(net)
    of.compile(net.model(outputs), tmp_path / "net.bin")
    session = of.Session(tmp_path / "net.bin", threads=1)
    whole = of.Session(tmp_path / "net.bin", threads=1, reuse=False)
    threaded = [of.Session(tmp_path / "net.bin", threads=n) for n in (2, 3)]
    for batch in (12, 7, 16):
        feeds = {"x": RNG.standard_normal((batch, 3, SIDE, SIDE)).astype(np.float32)}
        got = session.run(feeds)
        single = [session.run({"x": feeds["x"][k : k + 1]}) for k in range(batch)]
        for name in outputs:
            assert np.array_equal(got[name], np.concatenate([one[name] for one in single]))
            for other in (whole, session, *threaded):  # the session again: halos must have stayed
                assert other.run(feeds)[name].tobytes() == got[name].tobytes()
    large = session.statistics["arena_bytes"]
    session.run({"x": feeds["x"][:1]})
    assert large < 5 * session.statistics["arena_bytes"], "the batch did not run in parts"
    assert of.compare(net.model(outputs), feeds, rtol=1e-4, atol=1e-4).passed


def test_a_large_batch_needs_the_memory_of_few_images(tmp_path: Path):
    net = Net()
    x = "x"
    for k in range(4):
        x = net.add("Relu", net.conv(x, 32 if k else 3, 32))
    of.compile(net.model([net.add("GlobalAveragePool", x)]), tmp_path / "net.bin")
    sessions = {n: of.Session(tmp_path / "net.bin", threads=n) for n in (1, 2)}
    image = 4 * 32 * SIDE * SIDE
    for threads, session in sessions.items():
        session.prepare({"x": (64, 3, SIDE, SIDE)})
        assert session.statistics["arena_bytes"] < 20 * image * threads
        spans = [(b.first, b.last, b.offset, b.size) for b in session.buffers]
        assert max(offset + size for _, _, offset, size in spans) <= session.statistics["arena_bytes"]


def test_nodes_are_counted_once_a_run(tmp_path: Path):
    net = Net()
    x = net.add("Relu", net.conv(net.add("Relu", net.conv("x", 3, 64)), 64, 64))
    of.compile(net.model([x]), tmp_path / "net.bin")
    for threads in (1, 2):
        session = of.Session(tmp_path / "net.bin", threads=threads)
        session.profile()
        for _ in range(3):
            session.run({"x": np.zeros((8, 3, SIDE, SIDE), np.float32)})
        assert {row.runs for row in session.node_times() if row.op == "Conv"} == {3}
        assert all(row.nanoseconds > 0 for row in session.node_times() if row.op == "Conv")


def test_a_fixed_batch_is_planned_when_it_runs(tmp_path: Path):
    net = Net()
    x = net.add("Relu", net.conv(net.add("Relu", net.conv("x", 3, 64)), 64, 64))
    model = net.model([x])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    of.compile(model, tmp_path / "net.bin")
    feeds = {"x": RNG.standard_normal((8, 3, SIDE, SIDE)).astype(np.float32)}
    runs = [of.Session(tmp_path / "net.bin", threads=n, reuse=r).run(feeds)[x] for n in (1, 2) for r in (True, False)]
    assert all(run.tobytes() == runs[0].tobytes() for run in runs)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def product(builder, x, y):
    return builder.op("mul", x, y)


def test_a_constant_for_each_image_is_not_cut():
    images, net = 4, graphs.Net()
    gates = np.arange(1, 1 + images * 16, dtype=np.float32).reshape(images, 16, 1, 1)
    same = np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1)
    x = y = normal(images, 16, 96, 96)
    value = net.blocked(net.feed(x))
    for gated in (False, True, False):
        more = {"epilogue": graphs.formula(2, product)} if gated else {}
        operands = [net.constant(same, "conv16"), -1, -1, net.constant(gates)][: 4 if gated else 1]
        sizes = {"channels_in": 16, "channels_out": 16, "kernel_shape": [1, 1]}
        value = net.node("Conv", [value, *operands], layout=graphs.c16(), algorithm="direct", **sizes, **more)
        y = y * gates if gated else y
    for got in net.run(net.plain(value), threads=(1, 2)):
        assert np.array_equal(got, y)


def test_a_sum_over_the_first_dimension_of_a_larger_operand_is_not_cut():
    """The sum has as many rows as there are images, but row n is no sum of image n."""

    def summed(builder, x, y):
        builder.output(builder.op("mul", x, y), sum_to=1)
        return []

    a, b, c = (normal(2, 1 << 20) for _ in range(3))
    large, net = normal(2, 2, 1 << 20), graphs.Net()
    formula = graphs.formula(2, product)
    value = net.node("Formula", [net.feed(a), net.feed(b)], bytecode=formula)
    value = net.node("Formula", [net.feed(large), value], bytecode=graphs.formula(2, summed))
    value = net.node("Formula", [value, net.feed(c)], bytecode=formula)
    for got in net.run(value, threads=(1, 2)):
        np.testing.assert_allclose(got, (large * (a * b)).sum(0) * c, rtol=1e-5, atol=1e-5)
