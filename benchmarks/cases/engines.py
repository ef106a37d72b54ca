"""Operators inside ONNX Runtime: the cost of one more node, and CustomGELU against its own Gelu and five nodes."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

from benchmarks._case import OURS, Case, Prepared

N = 1 << 20
CHAIN = 100
MICROSECONDS = 0.35
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
    import statistics
    import time

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
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
    for _ in range(400):  # short blocks: most of them end before the system takes the processor away
        for name, pair_of_runs in pairs.items():
            for run, taken in zip(pair_of_runs, times[name], strict=True):
                started = time.perf_counter()
                for _ in range(10):
                    run()
                taken.append((time.perf_counter() - started) / 10)
    values = {}
    for name, (one, many) in times.items():
        values[name] = (statistics.median(many) - statistics.median(one)) / CHAIN * 1e6
    return Prepared(values=values | {f"{MICROSECONDS} us": MICROSECONDS})


CASES = [
    Case(
        f"onnxruntime/CustomGELU 1M{', 2 threads' if threads == 2 else ''}",
        _large,
        {"Gelu of onnxruntime": 1.0, "decomposed": 2.0} if threads == 1 else {},
        threads=threads,
        needs=("onnxruntime",),
    )
    for threads in (1, 2)
] + [
    Case(
        "onnxruntime/one more node",
        _overhead,
        {f"{MICROSECONDS} us": 1.0},
        metric="microseconds",
        needs=("onnxruntime",),
    )
]
