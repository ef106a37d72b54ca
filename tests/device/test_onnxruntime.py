"""ONNX Runtime on a GPU: parity with the CPU, its stream, memory that stays on the device, errors."""

import numpy as np
import pytest

import opforge.onnxruntime
from opforge.ops import custom_gelu
from opforge.verify.cases import arrays, cases_of
from tests.device.members import choices, close, declared, draw, name_of

pytestmark = pytest.mark.gpu
CALLS = [(o, types) for o in declared() for types in choices(o) if "bf16" not in name_of(types)]  # NumPy has none


@pytest.fixture(scope="module")
def host():
    """ONNX Runtime, where it has CUDA."""
    found = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    if "CUDAExecutionProvider" not in found.get_available_providers():
        pytest.skip("onnxruntime is a build for the CPU: pip install onnxruntime-gpu")
    return found


def model_of(operator, given, attributes, nodes=1):
    """A chain of nodes of the operator on inputs of unknown shapes."""
    from onnx import helper

    names = [p.name if a is not None else "" for p, a in zip(operator.signature.inputs, given, strict=True)]
    outputs = [p.name for p in operator.signature.outputs]
    made = []
    for k in range(nodes):
        inputs = names if k == 0 else [f"{outputs[0]}{k - 1}", *names[1:]]
        last = outputs if k == nodes - 1 else [f"{name}{k}" for name in outputs]
        made.append(helper.make_node(operator.name, inputs, last, domain=operator.domain, **attributes))
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), None)
        for n, a in zip(names, given, strict=True) if a is not None
    ]  # fmt: skip
    graph = helper.make_graph(made, "g", infos, [helper.make_empty_tensor_value_info(n) for n in outputs])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(operator.domain, operator.since_version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run(operator, given, attributes, device, **options):
    model = model_of(operator, given, attributes, **options)
    feeds = {p.name: a for p, a in zip(operator.signature.inputs, given, strict=True) if a is not None}
    return opforge.onnxruntime.session(model, device=device).run(None, feeds)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(("operator", "types"), CALLS, ids=lambda v: name_of(v) if isinstance(v, dict) else v.name)
def test_parity_with_the_cpu(operator, types):
    for case in cases_of(operator):
        given = arrays(operator, case, types, seed=0)
        found, right = (run(operator, given, case.attributes, device) for device in ("cuda", "cpu"))
        close(operator, found, right, factor=2)


@pytest.mark.usefixtures("host")
def test_many_nodes_on_one_stream_keep_their_order():
    given = draw(custom_gelu, [(1 << 20,)])
    found, right = (run(custom_gelu, given, {}, device, nodes=50) for device in ("cuda", "cpu"))
    close(custom_gelu, found, right, factor=50)


def test_tensors_that_stay_on_the_gpu(host):
    given = draw(custom_gelu, [(1000,)])
    session = opforge.onnxruntime.session(model_of(custom_gelu, given, {}), device="cuda")
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", host.OrtValue.ortvalue_from_numpy(given[0], "cuda", 0))
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert y.device_name() == "cuda"
    close(custom_gelu, [y.numpy()], [custom_gelu.reference(given[0].astype(np.float64))])


@pytest.mark.usefixtures("host")
def test_empty_tensors():
    (y,) = run(custom_gelu, [np.zeros((0, 3), np.float32)], {}, "cuda")
    assert y.shape == (0, 3)
