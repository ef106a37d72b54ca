"""Small programs built node by node, run through a real bin: what the kernel tests drive the runtime with."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from opforge.bin import format as bin_format
from opforge.bin.packing import PACKERS
from opforge.bin.program import Graph, Layout, Node, Program, Value
from opforge.bin.session import Session
from opforge.expr import ProgramBuilder
from opforge.expr.blob import encode

DTYPES = {
    np.dtype(np.float32): 1,
    np.dtype(np.uint8): 2,
    np.dtype(np.int8): 3,
    np.dtype(np.int32): 6,
    np.dtype(np.int64): 7,
    np.dtype(np.bool_): 9,
    np.dtype(np.float16): 10,
    np.dtype(np.float64): 11,
    np.dtype(ml_dtypes.bfloat16): 16,
}
PLAIN = Layout()


def c16(*halo: int) -> Layout:
    """A c16 layout with a halo (top, left, bottom, right)."""
    return Layout("c16", tuple(halo) if halo else (0, 0, 0, 0))


def formula(inputs: int, build: Any) -> bytes:
    """Bytecode of a function of a ProgramBuilder and its inputs."""
    builder = ProgramBuilder()
    result = build(builder, *[builder.input() for _ in range(inputs)])
    for value in result if isinstance(result, list) else [result]:
        builder.output(value)
    return encode(builder.build())


class Net:
    """A program under construction; values are indices."""

    def __init__(self) -> None:
        self.program = Program(graphs=[Graph("main")])
        self.feeds: dict[str, np.ndarray] = {}

    def _value(self, dtype: int, layout: Layout = PLAIN, **rest: Any) -> int:
        rank = 4 if layout.kind == "c16" else rest.pop("rank", None)
        shape = rest.pop("shape", None if rank is None else [None] * rank)
        self.program.values.append(Value(f"v{len(self.program.values)}", dtype, shape, layout, **rest))
        return len(self.program.values) - 1

    def feed(self, array: np.ndarray) -> int:
        index = self._value(DTYPES[array.dtype], shape=list(array.shape))
        self.feeds[self.program.values[index].name] = array
        self.program.graphs[0].inputs.append(index)
        return index

    def constant(self, array: np.ndarray, packing: str = "") -> int:
        data = PACKERS[packing](array) if packing else array
        return self._value(DTYPES[array.dtype], shape=list(array.shape), data=data, packing=packing)

    def node(
        self,
        op: str,
        inputs: Sequence[int],
        *,
        domain: str = "opforge",
        version: int = 1,
        layout: Layout = PLAIN,
        dtypes: Sequence[int] = (1,),
        **attributes: Any,
    ) -> Any:
        """Add a node; returns its output, or a list of them."""
        outputs = [self._value(dtype, layout) for dtype in dtypes]
        self.program.graphs[0].nodes.append(Node(domain, op, version, list(inputs), outputs, attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def onnx(
        self, op: str, version: int, inputs: Sequence[int], dtypes: Sequence[int] = (1,), **attributes: Any
    ) -> Any:
        """Add a node of the standard domain."""
        return self.node(op, inputs, domain="", version=version, dtypes=dtypes, **attributes)

    def blocked(self, value: int, *halo: int) -> int:
        """The value in c16."""
        return self.node("Reorder", [value], layout=c16(*halo))

    def plain(self, value: int) -> int:
        """A c16 value as a plain one."""
        return self.node("Reorder", [value])

    def run(self, output: int, threads: Sequence[int] = (1,)) -> list[np.ndarray]:
        """Write a bin and run it with each number of threads; one result for each."""
        self.program.graphs[0].outputs = [output]
        handle, name = tempfile.mkstemp(suffix=".bin")
        os.close(handle)
        try:
            bin_format.write(self.program, name)
            runs = [Session(name, threads=n).run(self.feeds) for n in threads]
        finally:
            Path(name).unlink()
        return [run[self.program.values[output].name] for run in runs]


def close(got: np.ndarray, reference: np.ndarray, tolerance: float = 2e-6) -> None:
    """Compare with a float64 reference: difference relative to the largest value (at least 1)."""
    assert got.shape == reference.shape, f"shape {got.shape}, expected {reference.shape}"
    if reference.size == 0:
        return
    scale = max(1.0, float(np.abs(reference).max()))
    error = float(np.abs(got - reference).max()) / scale
    assert error <= tolerance, f"error {error:.3g} above {tolerance:.3g}"
