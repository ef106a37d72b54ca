"""The hand-written kernel library, registered with ONNX Runtime, and one-line models."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import opforge as of

DATA = Path(__file__).parents[2] / "data"
INCLUDE = Path(__file__).parents[3] / "include"
DOMAIN = "com.example"
FLOAT, DOUBLE, INT32, INT64 = (getattr(TensorProto, n) for n in ("FLOAT", "DOUBLE", "INT32", "INT64"))


def make_model(nodes, inputs, outputs, domains=(("test.hand", 1),), *, constants=(), functions=()):
    """``inputs`` and ``outputs`` map names to (element type, dims or None)."""
    made = [[helper.make_tensor_value_info(n, *t) for n, t in side.items()] for side in (inputs, outputs)]
    graph = helper.make_graph(list(nodes), "g", *made, list(constants))
    imports = [helper.make_opsetid("", 20), *(helper.make_opsetid(d, v) for d, v in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def gelu(x):
    """The approximation by a tangent, in NumPy."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def formula_model(kind="CustomGELU", shape=("N", 5), element=FLOAT, domains=((DOMAIN, 1),), **attributes):
    """One node of one input."""
    of.load("opforge.ops")
    node = helper.make_node(kind, ["x"], ["y"], domain=domains[0][0], **attributes)
    return make_model([node], {"x": (element, list(shape))}, {"y": (element, None)}, domains)


@pytest.fixture(scope="session")
def hand_library(tmp_path_factory: pytest.TempPathFactory):
    """Its file."""
    path = tmp_path_factory.mktemp("handwritten") / "libhandwritten.so"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", f"-I{INCLUDE}"]
    subprocess.run(["cc", *flags, str(DATA / "handwritten_library.c"), "-o", str(path), "-lm"], check=True)
    return path


@pytest.fixture(scope="session")
def hand(hand_library):
    """A function that opens a session on one node of it: hand(op_type, inputs, n outputs, **attributes)."""
    import onnxruntime

    import opforge.onnxruntime
    from opforge.build import load_library

    opforge.onnxruntime.register_library(load_library(hand_library))

    def open_session(model, threads=1, **options):
        made = onnxruntime.SessionOptions()
        made.log_severity_level = 4
        made.intra_op_num_threads = threads
        for name, value in options.items():
            setattr(made, name, value)
        made.register_custom_ops_library(str(opforge.onnxruntime.adapter_path()))
        return onnxruntime.InferenceSession(model.SerializeToString(), made, providers=["CPUExecutionProvider"])

    return open_session
