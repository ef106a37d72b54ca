"""Hold an engine against the reference on one of the models; the reference's outputs are computed once and kept."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from opforge.errors import OpforgeError
from opforge.schema import load
from opforge.verify import compare, find_engine, flat_values
from opforge.verify._process import EngineProcess
from opforge.verify._runs import OWN
from tests.models import FOLDER, MODELS

__all__ = ["expected", "outcome", "process"]

Array = np.ndarray[Any, Any]


@cache
def expected(name: str) -> list[dict[str, Array]]:
    """Outputs of ONNX's evaluator for each set of inputs; kept in a file under the content of model and inputs."""
    model = MODELS[name]
    path = model.make()
    for package in model.packages:
        load(package)
    sets = [flat_values(values) for values in model.inputs()]
    key = hashlib.sha256(path.read_bytes())
    for values in sets:
        for label, array in values.items():
            key.update(label.encode() + array.tobytes())
    kept = FOLDER / f"expected_{name.replace(' ', '_')}_{key.hexdigest()[:12]}.npz"
    if kept.is_file():
        with np.load(kept) as archive:
            stored = {label: archive[label] for label in archive.files}
        return [
            {label.partition("/")[2]: array for label, array in stored.items() if label.startswith(f"{k}/")}
            for k in range(len(sets))
        ]
    run = find_engine("reference").load(path).run
    outputs = [flat_values(run(values)) for values in model.inputs()]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in kept.parent.glob(f"{kept.stem[:-12]}*.npz"):
        old.unlink(missing_ok=True)
    np.savez(kept, **{f"{k}/{label}": array for k, found in enumerate(outputs) for label, array in found.items()})
    return outputs


@cache
def process(engine: str) -> EngineProcess:
    """The engine in a process of its own, with the operators of all models; it is started once."""
    packages = dict.fromkeys(package for model in MODELS.values() for package in model.packages)
    return EngineProcess(engine, packages=list(packages), timeout=300)


def outcome(name: str, engine: str) -> tuple[bool, str]:
    """Whether the engine gives the reference's results within the model's tolerance; otherwise why not."""
    model = MODELS[name]
    right = expected(name)
    try:
        loader: Any = find_engine(engine) if engine in OWN else process(engine)
        run = loader.load(Path(model.make()), threads=1).run
        for values, outputs in zip(model.inputs(), right, strict=True):
            got = run(values)
            result = compare(
                "unused",
                values,
                engines={engine: lambda _i, g=got: g, "reference": lambda _i, o=outputs: o},
                rtol=model.rtol,
                atol=model.atol,
            )
            bad = [row for row in result.rows if not row.passed]
            if bad:
                return False, f"output {bad[0].output}: {bad[0].detail}"
    except OpforgeError as problem:
        return False, str(problem)
    return True, ""
