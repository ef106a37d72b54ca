"""What the tests of ncnn share: small models, and holding a converted one against ONNX Runtime."""

from itertools import product

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from opforge.engines.ncnn._convert import convert
from opforge.engines.ncnn._files import write_files
from opforge.engines.ncnn._run import Loaded

TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT32, "q": TensorProto.INT64}

# Every combination of the options that change how tensors lie in memory and how wide their numbers are.
OPTIONS = [
    {"use_packing_layout": packing, "use_fp16_packed": half, "use_fp16_storage": half, "use_fp16_arithmetic": half}
    for packing, half in product((False, True), repeat=2)
]
BRAIN = [{"use_packing_layout": packing, "use_bf16_storage": True} for packing in (False, True)]


def model_of(nodes, inputs, outputs=("y",), constants=None, opset=21, imports=()):
    """A model from nodes (operator, inputs, outputs, attributes) and inputs {name: (shape, dtype character)}."""
    made = []
    for name, ins, outs, attributes in nodes:
        domain, _, plain = name.rpartition("::")
        made.append(helper.make_node(plain, ins.split(), outs.split(), domain=domain, **attributes))
    given = [helper.make_tensor_value_info(n, TYPES[kind], shape) for n, (shape, kind) in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(made, "g", given, results, tensors)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in imports)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def draw(shape, kind="f", seed=0, low=-1.0, high=1.0):
    rng = np.random.default_rng(seed)
    if kind == "f":
        return rng.uniform(low, high, shape).astype(np.float32)
    return rng.integers(0, 5, shape).astype({"i": np.int32, "q": np.int64}[kind])


def expected(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@pytest.fixture
def agree(tmp_path):
    """Convert a model, run it with every combination of options, hold it against ONNX Runtime; return the layers."""

    def run(model, inputs, *, rtol=2e-5, atol=2e-6, want=None, options=OPTIONS, sizes=None):
        network = convert(model, sizes=sizes)
        write_files(network, tmp_path / "model.param")
        want = expected(model, inputs) if want is None else want
        for chosen in options:
            got = Loaded(tmp_path / "model.param", threads=1, options=chosen).run(inputs)
            # Weights and tensors are rounded to 11 and 8 bits of significand.
            error = 5e-2 if chosen.get("use_bf16_storage") else 5e-3 if chosen.get("use_fp16_storage") else 0.0
            wide = {"rtol": max(rtol, error), "atol": max(atol, error)}
            for name, value in want.items():
                assert got[name].shape == value.shape and got[name].dtype == value.dtype, (chosen, name)
                np.testing.assert_allclose(got[name], value, err_msg=str(chosen), **wide)
        return [layer.kind for layer in network.layers]

    return run


@pytest.fixture
def onnx_file(tmp_path):
    def write(model, name="model.onnx"):
        onnx.save(model, tmp_path / name)
        return tmp_path / name

    return write
