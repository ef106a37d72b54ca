"""Short ways to make small models and to compare what the compiler makes of them with onnx's reference."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import opforge as of
from opforge.bin import compiler
from opforge.bin import format as bin_format
from opforge.bin.lowering.report import CompileReport
from opforge.bin.program import Program
from opforge.bin.session import Session
from tests.unit.compiler.program_reference import Runner

Nodes = list[onnx.NodeProto]
FLOAT = TensorProto.FLOAT


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """``node("Add", "x y", "z")``; a dash is an absent input."""
    names = ["" if i == "-" else i for i in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=f"{op}_{outputs.split()[0]}", **attributes)


def chain(text: str) -> Nodes:
    """``chain("a = Div x two; y = Erf a")``: nodes without attributes."""
    made = []
    for line in text.split(";"):
        outputs, call = line.split("=")
        op, *inputs = call.split()
        made.append(node(op, " ".join(inputs), outputs))
    return made


def parsed(text: str) -> onnx.ModelProto:
    """Read a model in ONNX's own text."""
    return onnx.parser.parse_model(text)


def run(model: onnx.ModelProto, feeds: dict[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """Compile a model and run it."""
    of.compile(model, folder / "model.bin")
    return Session(folder / "model.bin").run(feeds)


def model(
    nodes: Nodes,
    inputs: dict[str, Any],
    constants: dict[str, np.ndarray] | None = None,
    outputs: str = "y",
    *,
    opset: int = 22,
    dtype: int = FLOAT,
    output_dtype: int | None = None,
    **others: Any,
) -> onnx.ModelProto:
    """A model; inputs map names to dimensions (or to (dtype, dimensions))."""
    infos = []
    for name, given in inputs.items():
        kind, dims = given if isinstance(given, tuple) else (dtype, given)
        infos.append(helper.make_tensor_value_info(name, kind, dims))
    out = [helper.make_tensor_value_info(o, output_dtype or dtype, None) for o in outputs.split()]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", infos, out, tensors)
    imports = [helper.make_opsetid("", opset), *others.pop("imports", [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **others)


def compiled(proto: Any, **options: Any) -> tuple[Program, CompileReport]:
    """Compile with every pass checking itself, whatever the runtime has kernels for."""
    return compiler.compile_program(proto, check=True, **{"require_kernels": False, **options})


def ops(program: Program) -> list[str]:
    """Operators in schedule order."""
    return [n.op for n in program.graphs[0].nodes]


def same(
    proto: onnx.ModelProto, feeds: dict[str, np.ndarray], *, rtol: float = 1e-5, atol: float = 1e-6
) -> tuple[Program, CompileReport]:
    """Compile, run by the reference of programs and by the runtime, compare with onnx's reference of the model."""
    program, report = compiled(proto)
    names = [o.name for o in proto.graph.output]
    expected = dict(zip(names, ReferenceEvaluator(proto).run(None, feeds), strict=True))
    for got in (Runner(program).run(feeds), native(program, feeds)):
        for name, want in expected.items():
            assert got[name].dtype == want.dtype
            assert got[name].shape == want.shape
            np.testing.assert_allclose(got[name].astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)
    return program, report


def native(program: Program, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run by the runtime."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.bin"
        bin_format.write(program, path)
        return dict(Session(path, threads=1).run({k: np.array(v) for k, v in feeds.items()}))
