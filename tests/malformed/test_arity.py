"""Nodes with more inputs or outputs than their operator: nobody would write those values, so they are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import opforge
from opforge.bin.lowering._generated.kernels import ARITIES, KERNELS
from opforge.errors import ArgumentError, CorruptFileError
from tests.unit.bin.programs import Builder

MANY = 2**31 - 1
F32 = np.float32


@pytest.mark.parametrize(("domain", "op"), ARITIES)
def test_a_program_is_refused(domain: str, op: str, tmp_path: Path) -> None:
    inputs, outputs = ARITIES[domain, op]
    since = KERNELS[domain, op][-1][0]
    for what, most in (("inputs", inputs), ("outputs", outputs)):
        if most == MANY:  # load and infer look themselves
            continue
        b = Builder()
        x = b.input("x", F32, [2, 3])
        given, made = (1, most + 1) if what == "outputs" else (most + 1, 1)
        results = b.node(op, [x] * given, F32, [2, 3], domain=domain, since=since, outputs=made)
        b.output(results[0] if made > 1 else results)
        path = b.save(tmp_path / f"{what}.bin")
        with pytest.raises(CorruptFileError, match=f"a node has more {what} than its operator\n.*at most {most}\n"):
            opforge.Session(path)


@pytest.mark.parametrize(("what", "size"), [("output", "output size 2"), ("input", "input size 2")])
def test_a_model_is_refused(what: str, size: str, tmp_path: Path) -> None:
    node = onnx.helper.make_node("Softmax", ["x"], ["y"], name="soft")
    (node.output if what == "output" else node.input).append("x" if what == "input" else "z")
    values = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(ArgumentError, match=f"node 'soft' .*contradicts itself.*{size}"):
        opforge.compile(model, tmp_path / "model.bin")
