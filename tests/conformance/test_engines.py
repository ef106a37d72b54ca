"""Every operator, all its cases in every dtype, inside ONNX Runtime: by custom operators, by the provider."""

from functools import partial

import numpy as np
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.onnx import complete_model
from opforge.onnx.one_node import _attribute
from opforge.schema import DType
from opforge.verify._operator_checks import values
from opforge.verify.hosts import Host

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.compiler

OPERATORS = [o for o in of.load("opforge.ops") if "Grad" not in o.name]
ROUTES = {"kernels": {}, "provider": {"provider": True}}


def compute(options, operator, arrays, attributes):
    """One node between casts: NumPy has no bfloat16 that ONNX Runtime's Python takes."""
    nodes, inputs, feeds, names = [], [], {}, []
    for k, array in enumerate(arrays):
        if array is None:
            names.append("")
            continue
        dtype = DType.parse(array.dtype)
        wide = array.astype(np.float32) if dtype.name == "bf16" else np.array(array, order="C")
        code = TensorProto.FLOAT if dtype.name == "bf16" else dtype.onnx
        inputs.append(helper.make_tensor_value_info(f"x{k}", code, [f"d{k}_{axis}" for axis in range(array.ndim)]))
        nodes.append(helper.make_node("Cast", [f"x{k}"], [f"c{k}"], to=dtype.onnx))
        feeds[f"x{k}"] = wide
        names.append(f"c{k}")
    while names and not names[-1]:
        names.pop()
    given = operator.coerce(attributes)
    results = [f"y{k}" for k in range(len(operator.signature.outputs))]
    node = helper.make_node(operator.name, names, results, domain=operator.domain)
    node.attribute.extend(_attribute(a.name, a.kind, given[a.name]) for a in operator.signature.attributes)
    shapes = [() if a is None else a.shape for a in arrays]
    dtypes = [None if a is None else DType.parse(a.dtype) for a in arrays]
    binding = operator.bind(shapes, dtypes, given)
    outputs = []
    for k, dtype in enumerate(binding.output_dtypes):
        code = TensorProto.FLOAT if dtype.name == "bf16" else dtype.onnx
        nodes.append(helper.make_node("Cast", [results[k]], [f"z{k}"], to=code))
        outputs.append(helper.make_tensor_value_info(f"z{k}", code, None))
    nodes.insert(len(nodes) - len(results), node)
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(operator.domain, operator.since_version)]
    model = complete_model(helper.make_model(graph, opset_imports=imports, ir_version=10))
    found = of.onnxruntime.session(model, **options).run(None, feeds)
    return [a.astype(d.numpy) for a, d in zip(found, binding.output_dtypes, strict=True)]


@pytest.mark.parametrize("route", list(ROUTES))
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_values_in_onnx_runtime(operator, route):
    host = Host(f"onnxruntime, {route}", partial(compute, ROUTES[route]), None)
    rows = list(values(operator, host, "quick", 0))
    wrong = [f"{row.case}, {row.dtype}: {row.detail}" for row in rows if not row.passed]
    assert rows and not wrong, "\n".join(wrong)
