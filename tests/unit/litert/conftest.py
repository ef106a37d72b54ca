"""The hand-written kernel library in LiteRT, and models of a few nodes."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

DATA = Path(__file__).parents[2] / "data"
INCLUDE = Path(__file__).parents[3] / "include"


def write(nodes, inputs, outputs, constants=None):
    """Return the bytes of a model.

    ``nodes``: (kind, input names, output names, options); a kind with "::" (or options as bytes) is a custom one.
    ``inputs``, ``outputs``: name -> (dtype, dims); what nodes hand on is named in ``outputs`` of the caller's too.
    """
    from opforge.engines.litert.writer._file import File

    file = File("test")
    graph = file.graph("main")
    places = {name: graph.tensor(name, *kind) for name, kind in {**inputs, **outputs}.items()}
    for name, data in (constants or {}).items():
        from opforge.schema import DType

        places[name] = graph.tensor(name, DType.parse(data.dtype).name, data.shape, data)
    for kind, given, made, options in nodes:
        tensors = [places[n] if n else -1 for n in given], [places[n] for n in made]
        if isinstance(options, bytes):
            node = graph._node(file.kind(32, kind), *tensors)
            node.customOptions = np.frombuffer(options, np.uint8)
        else:
            graph.node(kind, *tensors, **(options or {}))
    graph.tree.inputs = [places[n] for n in inputs]
    results = [n for n in outputs if n[0] != "_"]
    graph.tree.outputs = [places[n] for n in results]
    return file.finish({n: places[n] for n in inputs}, {n: places[n] for n in results})


def options(_counts=None, **attributes):
    """Encode custom options as the writer does, from Python values."""
    from flatbuffers import flexbuffers

    def put(value):
        if isinstance(value, bool):
            builder.Bool(value)
        elif isinstance(value, int):
            builder.Int(value)
        elif isinstance(value, float):
            builder.Float(value)
        elif isinstance(value, str):
            builder.String(value)
        else:
            with builder.Vector():
                for item in value:
                    put(item)

    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in {**attributes, **({"#inputs": _counts} if _counts else {})}.items():
            builder.Key(name)
            put(value)
    return bytes(builder.Finish())


@pytest.fixture(scope="session")
def hand_library(tmp_path_factory: pytest.TempPathFactory):
    """Its file."""
    path = tmp_path_factory.mktemp("handwritten") / "libhandwritten.so"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", f"-I{INCLUDE}"]
    subprocess.run(["cc", *flags, str(DATA / "handwritten_library.c"), "-o", str(path), "-lm"], check=True)
    return path


@pytest.fixture(scope="session")
def hand(hand_library):
    """A function that opens a session on one node: hand(operator, inputs, outputs, options)."""
    import opforge.litert
    from opforge.build import load_library

    opforge.litert.register_library(load_library(hand_library))

    def open_session(name, inputs, outputs, given=b"", threads=None):
        node = (f"test.hand::{name}:1", list(inputs), list(outputs), given)
        return opforge.litert.session(write([node], inputs, outputs), threads=threads)

    return open_session
