"""What the commands print with ``--json``, small and with something wrong, for the tests of the report."""

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'x' | `tick` \x07"
"""A name as a stranger's model may hold it."""


def check():
    def row(check, host, passed=True, detail="", case="small", dtype="f32"):
        return {"check": check, "case": case, "host": host, "dtype": dtype, "passed": passed, "detail": detail}

    good = [row("values", "numpy"), row("values", "torch"), row("gradient", "numpy"), row("schema", "", dtype="")]
    left = [row("host", "jax", case="left out", dtype="", detail="jax has no f16 kernels")]
    bad = [row("values", "torch", False, f"max |error| 3 at [0]: {HOSTILE}")]
    return {
        "passed": False,
        "reports": [
            {"subject": "a::Good", "level": "quick", "seed": 0, "passed": True, "rows": good + left},
            {"subject": "a::Bad", "level": "quick", "seed": 0, "passed": False, "rows": [*good, *bad]},
        ],
    }


def compare():
    def row(engine, output, error, margin, passed=True, shape=True):
        figures = {"max_abs": error, "mean_abs": error, "max_rel": error, "cosine": 1.0, "margin": margin}
        return {"engine": engine, "output": output, "same_shape": shape, "same_pattern": True, "worst": [0],
                "passed": passed, "elements": 4, "detail": "" if passed else "apart", **figures}  # fmt: skip

    rows = [row("opforge", "y", 1e-7, 0.02), row("opforge", "z", 0.0, 0.0), row("onnxruntime", "y", 2.0, 40.0, False),
            row("onnxruntime", "z", "inf", "inf", False, False)]  # fmt: skip
    return {"reference": "reference", "rtol": 1e-4, "atol": 1e-5, "passed": False, "rows": rows,
            "skipped": {"openvino": "openvino is not installed: pip install openvino"}, "crashed": {}}  # fmt: skip


def bench():
    times = {"opforge": 1.0, "onnxruntime": 2.5, "openvino": 1.25}
    rows = [
        {"engine": name, "load_ms": 3.0, "median_ms": ms, "best_ms": ms * 0.9, "ratio": 1.0 / ms, "max_abs": 0.0}
        for name, ms in times.items()
    ]
    return {"model": "net.onnx", "rounds": 15, "rows": rows, "skipped": {}}


def suite():
    row = {"case": "gelu", "metric": "time", "threads": 1, "ours": 1e-3, "peer": "torch", "peer_value": 3e-3,
           "ratio": 3.0, "interval": [2.9, 3.1], "limit": 3.5, "verdict": "below", "group": "operators"}  # fmt: skip
    return [row, {**row, "case": "net", "limit": 1.0, "verdict": "passed", "peer": "jax", "ratio": 1.5}]


def stress():
    latency = {"p50": 0.1, "p75": 0.2, "p90": 0.3, "p95": 0.3, "p99": 0.5, "p99.9": 0.9, "p99.99": 1.0, "max": 1.0,
               "mean": 0.2}  # fmt: skip
    part = {"runs": 100, "latency_ms": latency, "steps_ms": [[0.1, 0.5], [0.2, 0.8], [1.0, 1.0]]}
    verdicts = [
        {"check": "process", "passed": True, "words": "no crash", "detail": ""},
        {"check": "threads", "passed": False, "words": "NOT THREAD-SAFE: 3 of 100 calls", "detail": "a static buffer"},
        {"check": "memory", "passed": None, "words": "memory: not clear, run longer", "detail": ""},
    ]
    failure = {"kind": "mismatch", "case": "n=1", "text": "output y: 1 of 1 elements differ", "trace": "",
               "npz": "out/mismatch-0.npz", "reproduce": "opforge run net.bin --npz out/mismatch-0.npz"}  # fmt: skip
    return {
        "stress": "net.bin", "engine": "opforge", "host": None, "passed": False, "interrupted": "", "threads": 4,
        "run_threads": None, "seed": 0, "verdicts": verdicts, "runs": 200, "seconds": {"alone": 1.0, "together": 4.0},
        "alone": part, "together": part, "failures": [failure], "left_out": {}, "errors": {},
        "cases": [{"name": "n=1", "alone": {"runs": 9, "p50_ms": 0.1, "p99_ms": 0.5, "max_ms": 1.0}, "mismatches": 3}],
        "memory": {"samples_bytes": [[0.0, 10 << 20, 8 << 20], [1.0, 11 << 20, None], [2.0, 11 << 20, 9 << 20]]},
    }  # fmt: skip


def value(name, shape):
    return {"name": name, "dtype": "f32", "shape": shape, "layout": "plain", "kind": "tensor"}


def inspect_onnx():
    ops = [("n0", "MatMul", ["x", "w"], ["a"]), ("n1", "com.example::CustomGELU", ["a"], ["b"]),
           ("n2", "Softmax", ["b"], [HOSTILE])]  # fmt: skip
    nodes = [{"where": "", "name": n, "op": op, "inputs": i, "outputs": o} for n, op, i, o in ops]
    return {"file": "net.onnx", "size": 300, "ir_version": 10, "opset_imports": {"ai.onnx": 20},
            "inputs": [value("x", ["N", 4])], "outputs": [value(HOSTILE, ["N", 4])],
            "operators": {"MatMul": 1, "com.example::CustomGELU": 1, "Softmax": 1}, "initializers": 1, "functions": [],
            "metadata": {}, "problems": [], "valid": True, "nodes": nodes}  # fmt: skip


def inspect_bin():
    nodes = [
        {"graph": "g", "domain": "opforge", "op": "MatMul", "inputs": ["x", "w"], "outputs": ["b"], "attributes": {},
         "origin": ["n0", "n1"]},
        {"graph": "g", "domain": "", "op": "Softmax", "inputs": ["b"], "outputs": [HOSTILE], "attributes": {},
         "origin": ["n2"]},
    ]  # fmt: skip
    return {"file": "net.bin", "size": 3 << 20, "format": 1, "min_reader": 1, "sections": [], "target": "cpu",
            "cpu_features": [], "inputs": [value("x", ["N", 4])], "outputs": [value(HOSTILE, None)], "graphs": 1,
            "operators": {"opforge::MatMul": 1, "Softmax": 1}, "layouts": {}, "weights": {}, "conversions": [],
            "required_operators": [], "metadata": {}, "nodes": nodes}  # fmt: skip


def memory():
    buffer = {"name": HOSTILE, "kind": "halo", "node": "MatMul", "values": 1, "first": 0, "last": 1, "offset": 0,
              "size": 64}  # fmt: skip
    return {"file": "net.bin", "inputs": {"x": [2, 4]}, "nodes": 2, "executed_nodes": 2, "peak_bytes": 64,
            "lower_bound_bytes": 64, "ratio": 1.0, "no_reuse_bytes": 128, "views": 0, "in_place": 1,
            "buffers": [buffer]}  # fmt: skip


def profile():
    def node(name, share, moves="", **more):
        return {"name": name, "operator": "MatMul", "node": 0, "device": "cpu", "calls": 10, "mean_ns": 1e5,
                "p50_ns": 1e5, "p99_ns": 2e5, "total_ns": 1e6, "share": share, "bytes": 4000, "flops": 8000,
                "gbytes_per_s": 4.0, "gflops_per_s": 8.0, "intensity": 2.0, "of_roof": 0.5, "moves": moves,
                "fused": "MatMul + CustomGELU", "helped": None, "speedup": None, "members": ["n0"], "scopes": [],
                "sources": ["net.py:3"], **more}  # fmt: skip

    copied = node("copy", 0.2, "copy", bytes=None, flops=None, gflops_per_s=None, intensity=None, of_roof=None)
    nodes = [node(HOSTILE, 0.8), copied]
    operators = [{"operator": n["operator"], "nodes": 1, "calls": 10, "total_ns": 1, "share": n["share"], "bytes": 1,
                  "flops": 1, "moves": n["moves"]} for n in nodes]  # fmt: skip
    advice = {"rule": "low arithmetic intensity", "where": "a", "figure": 0.2, "threshold": 0.25, "unit": "of it",
              "text": "MatMul does 2 operations per byte", "hint": "fuse with neighbours"}  # fmt: skip
    groups = [{"members": ["n0", "n1"], "nodes": {"opforge": ["MatMul"], "onnxruntime": ["MatMul", "Gelu"]},
               "run_ns": {"opforge": 1e5, "onnxruntime": 3e5}}]  # fmt: skip
    return {"model": "net.bin", "engine": "opforge", "version": "0", "threads": 1, "inputs": {},
            "run_ns": {"runs": 10, "mean": 2e5, "p50": 2e5, "p99": 3e5}, "unwatched_run_ns": None, "overhead": None,
            "watched_every": 1, "lost_events": 0, "copy_share": 0.2, "layout_share": 0.0,
            "machine": {"identity": "it", "threads": 1, "flops_per_s": 5e11, "bytes_per_s": 9e9,
                        "copies": [[16384, 1e11], [1 << 28, 9e9]]},
            "operators": operators, "nodes": nodes, "others": [], "skipped": {}, "side_by_side": groups,
            "advice": [advice, {**advice, "where": "b"}]}  # fmt: skip


def everything():
    return {
        "check": check(), "compare": compare(), "bench": bench(), "suite": suite(), "profile": profile(),
        "stress": stress(), "onnx": inspect_onnx(), "bin": inspect_bin(), "memory": memory(),
    }  # fmt: skip
