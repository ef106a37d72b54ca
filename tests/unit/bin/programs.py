"""Hand-built programs, so that the format and the runtime are tested without the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.format import write
from opforge.bin.program import Dim, Graph, Layout, Node, Program, Value
from opforge.bin.session import Session

ONNX_DTYPES = {dtype: number for number, dtype in NUMPY_DTYPES.items()}
BF16 = np.dtype(ml_dtypes.bfloat16)


class Builder:
    """Collects values and nodes of a main graph (or of a subgraph that shares the values)."""

    def __init__(self, program: Program | None = None, name: str = "main") -> None:
        self.program = program or Program(metadata={"tool": "opforge tests"})
        self.graph = Graph(name)
        self.program.graphs.append(self.graph)

    @property
    def index(self) -> int:
        return self.program.graphs.index(self.graph)

    def value(self, name: str, dtype: Any, shape: list[Dim] | None, layout: Layout | None = None) -> int:
        self.program.values.append(Value(name, ONNX_DTYPES[np.dtype(dtype)], shape, layout or Layout()))
        return len(self.program.values) - 1

    def input(self, name: str, dtype: Any, shape: list[Dim] | None) -> int:
        index = self.value(name, dtype, shape)
        self.graph.inputs.append(index)
        return index

    def constant(self, data: Any, name: str = "", packing: str = "", shape: list[Dim] | None = None) -> int:
        array = np.asarray(data)
        index = self.value(name or f"constant{len(self.program.values)}", array.dtype, shape or list(array.shape))
        self.program.values[index].data = array
        self.program.values[index].packing = packing
        return index

    def node(
        self,
        op: str,
        inputs: list[int],
        dtype: Any = np.float32,
        shape: list[Dim] | None = None,
        *,
        domain: str = "",
        since: int = 25,
        outputs: int = 1,
        name: str = "",
        **attributes: Any,
    ) -> Any:
        base = name or f"{op}{len(self.program.values)}"
        made = [self.value(base if k == 0 else f"{base}_{k}", dtype, shape) for k in range(outputs)]
        self.graph.nodes.append(Node(domain, op, since, inputs, made, attributes, origin=[f"{op}_node"]))
        return made[0] if outputs == 1 else made

    def output(self, *indices: int) -> None:
        self.graph.outputs += indices

    def save(self, path: Path, **options: Any) -> Path:
        write(self.program, path, **options)
        return path

    def session(self, folder: Path, **options: Any) -> Session:
        return Session(self.save(folder / "model.bin"), **options)


def single(
    folder: Path,
    op: str,
    inputs: list[Any],
    dtype: Any = None,
    *,
    outputs: int = 1,
    constant: tuple[int, ...] = (),
    **attributes: Any,
) -> Any:
    """Run one node: arrays become inputs, those listed in ``constant`` are stored in the model, None is absent."""
    builder = Builder()
    feeds: dict[str, Any] = {}
    ids = []
    for k, item in enumerate(inputs):
        if item is None:
            ids.append(-1)
        elif k in constant:
            ids.append(builder.constant(item))
        else:
            array = np.asarray(item)
            ids.append(builder.input(f"x{k}", array.dtype, [None] * array.ndim))
            feeds[f"x{k}"] = array
    made = builder.node(op, ids, dtype or np.asarray(inputs[0]).dtype, outputs=outputs, **attributes)
    builder.output(*(made if outputs > 1 else [made]))
    result = list(builder.session(folder).run(feeds).values())
    return result if outputs > 1 else result[0]


def attention_like(folder: Path, **options: Any) -> Session:
    """Symbolic shapes that are computed by the graph itself: x -> [B, L, H, D] -> transposed -> back."""
    b = Builder()
    x = b.input("x", np.float32, ["B", "L", 12])
    shape = b.node("Shape", [x], np.int64, [3])
    zero, one = b.constant(np.int64(0)), b.constant(np.int64(1))
    parts = [
        b.node("Unsqueeze", [b.node("Gather", [shape, k], np.int64, []), b.constant(np.array([0]))], np.int64, [1])
        for k in (zero, one)
    ]
    heads = b.constant(np.array([3, 4]))
    wanted = b.node("Concat", [*parts, heads], np.int64, [4], axis=0)
    split = b.node("Reshape", [x, wanted], np.float32, ["B", "L", 3, 4])
    turned = b.node("Transpose", [split], np.float32, ["B", 3, "L", 4], perm=[0, 2, 1, 3])
    back = b.node("Transpose", [turned], np.float32, ["B", "L", 3, 4], perm=[0, 2, 1, 3])
    flat = b.node("Reshape", [back, b.constant(np.array([0, 0, -1]))], np.float32, ["B", "L", 12], name="y")
    b.output(flat, turned)
    return b.session(folder, **options)
