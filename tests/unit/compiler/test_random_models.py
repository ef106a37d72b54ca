"""Random models with open sizes, some known only from data, at sizes 0, 1 and 7 against onnx's reference."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import opforge as of
from tests.soak import FACTOR

WIDTH = 4
SIZES = (0, 1, 7)


@dataclass
class Matrix:
    """A value of two dimensions: rows of an open number (equal numbers have equal ``rows``), columns of a known one."""

    name: str
    rows: str
    columns: int


@dataclass
class Builder:
    """Adds nodes to a model, each time with one new matrix."""

    draw: Callable[..., object]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    values: list[Matrix] = field(default_factory=list)

    def pick(self, *, columns: int | None = None, rows: str | None = None) -> Matrix | None:
        fits = [
            v for v in self.values if columns in (None, v.columns) and rows in (None, v.rows) and v.columns <= 2 * WIDTH
        ]
        return self.draw(st.sampled_from(fits)) if fits else None  # type: ignore[return-value]

    def constant(self, data: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(data), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{name}", **attributes))
        return name

    def add(self, name: str, rows: str | None, columns: int) -> None:
        self.values.append(Matrix(name, rows or f"new{len(self.values)}", columns))

    def weights(self, *shape: int) -> str:
        rng = np.random.default_rng(len(self.nodes))
        return self.constant(rng.standard_normal(shape).astype(np.float32))

    def count(self, v: Matrix) -> str:
        return self.op("Shape", v.name, start=0, end=1)


def unary(b: Builder, v: Matrix) -> None:
    kind = b.draw(st.sampled_from(["Relu", "Neg", "Tanh", "Sigmoid", "Abs", "Erf", "Softplus", "Identity"]))
    b.add(b.op(str(kind), v.name), v.rows, v.columns)


def binary(b: Builder, v: Matrix) -> None:
    w = b.pick(columns=v.columns, rows=v.rows)
    assert w is not None
    kind = b.draw(st.sampled_from(["Add", "Sub", "Mul", "Max", "Min"]))
    b.add(b.op(str(kind), v.name, w.name), v.rows, v.columns)


def bias(b: Builder, v: Matrix) -> None:
    b.add(b.op("Add", v.name, b.weights(v.columns)), v.rows, v.columns)


def product(b: Builder, v: Matrix) -> None:
    columns = b.draw(st.integers(1, 5))
    assert isinstance(columns, int)
    b.add(b.op("MatMul", v.name, b.weights(v.columns, columns)), v.rows, columns)


def gram(b: Builder, v: Matrix) -> None:
    """A product over the open dimension; of no rows it is zero."""
    b.add(b.op("MatMul", b.op("Transpose", v.name, perm=[1, 0]), v.name), f"{v.columns}", v.columns)


def softmax(b: Builder, v: Matrix) -> None:
    b.add(b.op("Softmax", v.name, axis=-1), v.rows, v.columns)


def row_sums(b: Builder, v: Matrix) -> None:
    b.add(b.op("ReduceSum", v.name, b.constant([1]), keepdims=1), v.rows, 1)


def column_sums(b: Builder, v: Matrix) -> None:
    b.add(b.op("ReduceSum", v.name, b.constant([0]), keepdims=1), "1", v.columns)


def below(b: Builder, v: Matrix) -> None:
    w = b.pick(columns=v.columns)
    assert w is not None
    b.add(b.op("Concat", v.name, w.name, axis=0), None, v.columns)


def beside(b: Builder, v: Matrix) -> None:
    w = b.pick(rows=v.rows)
    assert w is not None
    b.add(b.op("Concat", v.name, w.name, axis=1), v.rows, v.columns + w.columns)


def part(b: Builder, v: Matrix) -> None:
    """Rows between bounds that may lie outside, backwards too."""
    start, end, step = b.draw(st.sampled_from([(0, 3, 1), (1, -1, 1), (-2, 100, 1), (-1, -100, -1), (0, 100, 3)]))  # type: ignore[misc]
    numbers = [b.constant([n]) for n in (start, end, 0, step)]
    b.add(b.op("Slice", v.name, *numbers), None, v.columns)


def half(b: Builder, v: Matrix) -> None:
    """A bound that is computed from the size."""
    end = b.op("Div", b.count(v), b.constant([2]))
    b.add(b.op("Slice", v.name, b.constant([0]), end, b.constant([0])), None, v.columns)


def positive_rows(b: Builder, v: Matrix) -> None:
    """How many rows are left depends on data."""
    sums = b.op("ReduceSum", v.name, b.constant([1]), keepdims=0)
    chosen = b.op("NonZero", b.op("Greater", sums, b.constant(np.float32(0))))
    b.add(b.op("Gather", v.name, b.op("Squeeze", chosen, b.constant([0])), axis=0), None, v.columns)


def compressed(b: Builder, v: Matrix) -> None:
    sums = b.op("ReduceSum", v.name, b.constant([1]), keepdims=0)
    b.add(b.op("Compress", v.name, b.op("Less", sums, b.constant(np.float32(0.5))), axis=0), None, v.columns)


def flat(b: Builder, v: Matrix) -> None:
    b.add(b.op("Reshape", v.name, b.constant([-1, 1])), None, 1)


def reshaped(b: Builder, v: Matrix) -> None:
    """To the shape that another value has, by way of a vector."""
    flat_value = b.op("Reshape", v.name, b.constant([-1]))
    b.add(b.op("Reshape", flat_value, b.op("Shape", v.name)), v.rows, v.columns)


def numbered(b: Builder, v: Matrix) -> None:
    """Plus the number of each row: a Range to a size."""
    end = b.op("Squeeze", b.count(v), b.constant([0]))
    numbers = b.op("Range", b.constant(np.int64(0)), end, b.constant(np.int64(1)))
    column = b.op("Unsqueeze", b.op("Cast", numbers, to=TensorProto.FLOAT), b.constant([1]))
    b.add(b.op("Mul", b.op("Add", v.name, column), b.constant(np.float32(0.1))), v.rows, v.columns)


def largest(b: Builder, v: Matrix) -> None:
    """The two largest of each column, or as many as there are."""
    k = b.op("Min", b.count(v), b.constant([2]))
    names = [f"t{len(b.nodes)}", f"i{len(b.nodes)}"]
    b.nodes.append(helper.make_node("TopK", [v.name, k], names, axis=0))
    b.add(names[0], None, v.columns)


def spread(b: Builder, v: Matrix) -> None:
    """A row for each row of another value."""
    row = b.op("ReduceSum", v.name, b.constant([0]), keepdims=1)
    w = b.pick()
    assert w is not None
    shape = b.op("Concat", b.count(w), b.constant([v.columns]), axis=0)
    b.add(b.op("Expand", row, shape), w.rows, v.columns)


def padded(b: Builder, v: Matrix) -> None:
    b.add(b.op("Pad", v.name, b.constant([1, 0, 2, 1]), b.constant(np.float32(0.5))), None, v.columns + 1)


def chosen(b: Builder, v: Matrix) -> None:
    w = b.pick(columns=v.columns, rows=v.rows)
    assert w is not None
    b.add(b.op("Where", b.op("Less", v.name, w.name), v.name, b.op("Neg", w.name)), v.rows, v.columns)


def running(b: Builder, v: Matrix) -> None:
    b.add(b.op("CumSum", v.name, b.constant(np.int64(0))), v.rows, v.columns)


STEPS = [
    unary, binary, bias, product, gram, softmax, row_sums, column_sums, below, beside, part, half, positive_rows,
    compressed, flat, reshaped, numbered, largest, spread, padded, chosen, running,
]  # fmt: skip


@st.composite
def models(draw) -> onnx.ModelProto:
    b = Builder(draw)
    b.values = [Matrix("x", "N", WIDTH), Matrix("z", "N", WIDTH)]
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=9)):
        source = b.pick()
        assert source is not None
        step(b, source)
    outputs = draw(st.lists(st.sampled_from(b.values[2:]), min_size=1, max_size=3, unique_by=lambda v: v.name))
    names = list(dict.fromkeys([b.values[-1].name, *(o.name for o in outputs)]))
    given_inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", WIDTH]) for n in ("x", "z")]
    given_outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
    graph = helper.make_graph(b.nodes, "random", given_inputs, given_outputs, b.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@settings(max_examples=50 * FACTOR, deadline=None, derandomize=FACTOR == 1, suppress_health_check=list(HealthCheck))
@given(models())
def test_open_sizes(proto: onnx.ModelProto) -> None:
    reference = ReferenceEvaluator(proto)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.bin"
        of.compile(proto, path)
        session = of.Session(path, threads=1)
        for size in SIZES:
            rng = np.random.default_rng(size)
            feeds = {n: rng.standard_normal((size, WIDTH)).astype(np.float32) for n in ("x", "z")}
            got = session.run(feeds)
            for output, expected in zip(proto.graph.output, reference.run(None, feeds), strict=True):
                assert got[output.name].shape == expected.shape, (output.name, size)
                np.testing.assert_allclose(got[output.name], expected, rtol=2e-4, atol=2e-4, err_msg=output.name)
