"""Every operator, all its cases in every dtype, in ONNX Runtime (both ways), in OpenVINO and LiteRT."""

from functools import partial

import pytest

import opforge as of
from opforge.verify._operator_checks import values
from opforge.verify.hosts import Host
from opforge.verify.support import case_model, engine_support

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.compiler

OPERATORS = [o for o in of.load("opforge.ops") if "Grad" not in o.name]
LAYOUTS = 1  # cases per choice of dtypes that are tried in every memory layout
ROUTES = {"kernels": {}, "provider": {"provider": True}}


def compute(options, operator, arrays, attributes):
    model, feeds, dtypes = case_model(operator, arrays, attributes)
    found = of.onnxruntime.session(model, **options).run(None, feeds)
    return [a.astype(d.numpy) for a, d in zip(found, dtypes, strict=True)]


@pytest.mark.parametrize("route", list(ROUTES))
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_values_in_onnx_runtime(operator, route):
    host = Host(f"onnxruntime, {route}", partial(compute, ROUTES[route]), None)
    rows = list(values(operator, host, LAYOUTS, 0))
    wrong = [f"{row.case}, {row.dtype}: {row.detail}" for row in rows if not row.passed]
    assert rows and not wrong, "\n".join(wrong)


def compute_in_openvino(core, operator, arrays, attributes):
    import openvino

    model, feeds, dtypes = case_model(operator, arrays, attributes)
    config = {openvino.properties.hint.inference_precision: openvino.Type.f32}
    request = of.openvino.session(model, config=config, core=core, route="adapter").create_infer_request()
    request.start_async(feeds)
    request.wait()
    return [request.get_output_tensor(k).data.astype(d.numpy) for k, d in enumerate(dtypes)]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_values_in_openvino(operator):
    openvino = pytest.importorskip("openvino")
    host = Host("openvino", partial(compute_in_openvino, openvino.Core()), None)
    rows = list(values(operator, host, LAYOUTS, 0))
    wrong = [f"{row.case}, {row.dtype}: {row.detail}" for row in rows if not row.passed and "f64" not in row.dtype]
    assert rows and not wrong, "\n".join(wrong)
    # OpenVINO's CPU computes f64 in f32, whatever a node asks for.
    assert any(not row.passed for row in rows if "f64" in row.dtype)


def compute_in_litert(operator, arrays, attributes):
    model, feeds, dtypes = case_model(operator, arrays, attributes)
    with of.litert.session(of.litert.convert(model), threads=1) as session:
        found = session.run(feeds)
    return [found[f"z{k}"].astype(d.numpy) for k, d in enumerate(dtypes)]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_values_in_litert(operator):
    pytest.importorskip("ai_edge_litert")
    rows = list(values(operator, Host("litert", compute_in_litert, None), LAYOUTS, 0))
    wrong = [f"{row.case}, {row.dtype}: {row.detail}" for row in rows if not row.passed]
    empty = [text for text in wrong if "at least one element" in text or "without elements" in text]
    assert rows and wrong == empty, "\n".join(text for text in wrong if text not in empty)
    assert len(empty) < len(rows) / 2


def test_support_keeps_the_reason_where_an_engine_does_not_run_an_operator(monkeypatch):
    mish = next(o for o in OPERATORS if o.name == "Mish")
    rows = {row.dtypes: row for row in engine_support([mish], ["onnxruntime"])}
    assert rows["f32"].passed and not rows["f64"].passed
    assert "Softplus" in rows["f64"].reason, "ONNX Runtime has no Softplus in float64, and the body uses it"
    monkeypatch.setattr("opforge.engines.onnxruntime._engine._version", lambda: "1.16.3")
    (row,) = engine_support([mish], ["onnxruntime"])
    assert not row.passed and "1.20 is needed; pip install" in row.reason
