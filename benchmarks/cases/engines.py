"""Operators inside ONNX Runtime and OpenVINO: one more node, and CustomGELU against their own Gelu and five nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks._case import OURS, Case, Prepared

N = 1 << 20
CHAIN = 100
MICROSECONDS = {"onnxruntime": 0.35, "openvino": 1.0}
"""What one more node may cost."""


def _model(kind: str, nodes: int, domain: str, shape: list[Any]) -> Any:  # noqa: ANN401 - onnx.ModelProto
    from onnx import TensorProto, helper

    names = ["x", *(f"t{k}" for k in range(1, nodes)), "y"]
    attributes = {"approximate": "tanh"} if kind == "Gelu" else {}
    made = [helper.make_node(kind, [a], [b], domain=domain, **attributes) for a, b in pairwise(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(made, kind, ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _decomposed(shape: list[Any]) -> Any:  # noqa: ANN401 - onnx.ModelProto
    """The same formula as the nodes that an exporter without the operator writes."""
    import opforge as of

    whole = _model("CustomGELU", 1, "com.example", shape)
    return of.onnx.inline_functions(of.onnx.complete_model(whole))


def _options(threads: int, optimize: bool = True) -> Any:  # noqa: ANN401 - onnxruntime.SessionOptions
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if not optimize:  # fusing would make a Gelu of them
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def _bound(session: Any, x: Any) -> Any:  # noqa: ANN401 - onnxruntime's objects
    """A run on memory of the session's own, without what Python adds to a call."""
    import onnxruntime

    given, result = onnxruntime.OrtValue.ortvalue_from_numpy(x), onnxruntime.OrtValue.ortvalue_from_numpy(x.copy())
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", given)
    binding.bind_ortvalue_output("y", result)
    run = partial(session.run_with_iobinding, binding)
    run.result = result  # type: ignore[attr-defined]
    return run


def _large(threads: int) -> Prepared:
    import numpy as np
    import onnxruntime

    import opforge as of

    of.load("opforge.ops")
    x = (np.random.default_rng(0).standard_normal(N) * 3).astype(np.float32)
    cpu = {"providers": ["CPUExecutionProvider"]}
    sessions = {
        OURS: of.onnxruntime.session(_model("CustomGELU", 1, "com.example", ["N"]), _options(threads)),
        "Gelu of onnxruntime": onnxruntime.InferenceSession(
            _model("Gelu", 1, "", ["N"]).SerializeToString(), _options(threads), **cpu
        ),
        "decomposed": onnxruntime.InferenceSession(
            _decomposed(["N"]).SerializeToString(), _options(threads, optimize=False), **cpu
        ),
    }
    runs = {name: _bound(session, x) for name, session in sessions.items()}
    for run in runs.values():
        run()
        np.testing.assert_allclose(run.result.numpy(), runs[OURS].result.numpy(), rtol=1e-4, atol=1e-5)
    return Prepared(runs=runs)


def _overhead(threads: int) -> Prepared:
    """Microseconds that one node more costs: a chain of 101 nodes on one element less one node, by 100."""
    import numpy as np
    import onnxruntime

    import opforge as of

    of.load("opforge.ops")
    x = np.ones(1, np.float32)
    cpu = {"providers": ["CPUExecutionProvider"]}

    def pair(open_session: Any, kind: str, domain: str) -> tuple[Any, Any]:  # noqa: ANN401 - functions of sessions
        one, many = (open_session(_model(kind, n, domain, [1])) for n in (1, CHAIN + 1))
        return _bound(one, x), _bound(many, x)

    pairs = {
        OURS: pair(lambda m: of.onnxruntime.session(m, _options(threads)), "CustomGELU", "com.example"),
        "provider": pair(
            lambda m: of.onnxruntime.session(m, _options(threads), provider=True), "CustomGELU", "com.example"
        ),
        "Gelu of onnxruntime": pair(
            lambda m: onnxruntime.InferenceSession(m.SerializeToString(), _options(threads), **cpu), "Gelu", ""
        ),
    }
    limit = MICROSECONDS["onnxruntime"]
    return Prepared(values=_each_more(pairs) | {f"{limit} us": limit})


def _each_more(pairs: Mapping[str, tuple[Callable[[], Any], Callable[[], Any]]]) -> dict[str, float]:
    """Microseconds that one node more costs, from runs of one and of 101 nodes."""
    import statistics
    import time

    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
    for _ in range(400):  # short blocks: most of them end before the system takes the processor away
        for name, pair_of_runs in pairs.items():
            for run, taken in zip(pair_of_runs, times[name], strict=True):
                started = time.perf_counter()
                for _ in range(10):
                    run()
                taken.append((time.perf_counter() - started) / 10)
    return {
        name: (statistics.median(many) - statistics.median(one)) / CHAIN * 1e6 for name, (one, many) in times.items()
    }


def _openvino(model: Any, threads: int, ours: bool = False) -> Any:  # noqa: ANN401 - openvino.InferRequest
    import openvino

    import opforge as of

    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    if ours:
        return of.openvino.session(model, config=config).create_infer_request()
    core = openvino.Core()
    return core.compile_model(core.read_model(model.SerializeToString()), "CPU", config).create_infer_request()


def _openvino_large(threads: int) -> Prepared:
    import numpy as np
    import openvino

    import opforge as of

    of.load("opforge.ops")
    x = (np.random.default_rng(0).standard_normal(N) * 3).astype(np.float32)
    # OpenVINO fuses the nodes of the decomposed form.
    requests = {
        OURS: _openvino(_model("CustomGELU", 1, "com.example", ["N"]), threads, ours=True),
        "Gelu of openvino": _openvino(_model("Gelu", 1, "", ["N"]), threads),
        "decomposed": _openvino(_decomposed(["N"]), threads),
    }
    given = openvino.Tensor(x, shared_memory=True)
    for request in requests.values():
        request.set_input_tensor(given)
        request.infer()
        np.testing.assert_allclose(
            request.get_output_tensor().data, requests[OURS].get_output_tensor().data, rtol=1e-4, atol=1e-5
        )
    return Prepared(runs={name: request.infer for name, request in requests.items()})


def _openvino_overhead(threads: int) -> dict[str, Prepared]:
    """The same in OpenVINO, where shapes are known and where they are not; its Softmax is a node that is not fused."""
    import numpy as np
    import openvino

    import opforge as of

    of.load("opforge.ops")
    x = np.ones(1, np.float32)

    def pair(kind: str, domain: str, shape: list[Any]) -> tuple[Any, Any]:
        requests = [_openvino(_model(kind, n, domain, shape), threads, ours=bool(domain)) for n in (1, CHAIN + 1)]
        for request in requests:
            request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
            request.infer()
        return requests[0].infer, requests[1].infer

    limit = MICROSECONDS["openvino"]
    parts = {}
    for name, shape in (("known shapes", [1]), ("any shapes", ["N"])):
        pairs = {OURS: pair("CustomGELU", "com.example", shape), "Softmax of openvino": pair("Softmax", "", shape)}
        asked = {f"{limit} us": limit} if name == "known shapes" else {}
        parts[name] = Prepared(values=_each_more(pairs) | asked)
    return parts


CASES = (
    [
        Case(
            f"onnxruntime/CustomGELU 1M{', 2 threads' if threads == 2 else ''}",
            _large,
            {"Gelu of onnxruntime": 1.0, "decomposed": 2.0} if threads == 1 else {},
            threads=threads,
            needs=("onnxruntime",),
        )
        for threads in (1, 2)
    ]
    + [
        Case(
            f"openvino/CustomGELU 1M{', 2 threads' if threads == 2 else ''}",
            _openvino_large,
            {"Gelu of openvino": 1.0} if threads == 1 else {},
            threads=threads,
            needs=("openvino",),
        )
        for threads in (1, 2)
    ]
    + [
        Case(
            "onnxruntime/one more node",
            _overhead,
            {f"{MICROSECONDS['onnxruntime']} us": 1.0},
            metric="microseconds",
            needs=("onnxruntime",),
        ),
        Case(
            "openvino/one more node",
            _openvino_overhead,
            {f"known shapes/{MICROSECONDS['openvino']} us": 1.0},
            metric="microseconds",
            needs=("openvino",),
        ),
    ]
)
