"""Hold an engine against the reference on one of the models."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks._exports import keyed
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
    """Outputs of ONNX's evaluator for each set of inputs."""
    model = MODELS[name]
    for package in model.packages:
        load(package)
    run = find_engine("reference").load(model.make()).run
    return [flat_values(run(values)) for values in model.inputs()]


@cache
def process(engine: str) -> EngineProcess:
    """The engine in a process of its own, with the operators of all models; it is started once."""
    packages = dict.fromkeys(package for model in MODELS.values() for package in model.packages)
    return EngineProcess(engine, packages=list(packages), timeout=300)


def _file(name: str, engine: str) -> Path:
    """The model in the form that the engine takes: ExecuTorch takes programs that were lowered from PyTorch."""
    model = MODELS[name]
    if engine != "executorch" or model.module is None:
        return model.make()
    import torch

    import opforge.executorch

    given = model.inputs()[0]
    outputs = [item.name for item in onnx.load(model.make(), load_external_data=False).graph.output]
    path = keyed(FOLDER / f"{name.replace(' ', '_')}.pte", __file__)
    if not path.is_file():
        arguments = tuple(torch.from_numpy(np.asarray(value)) for value in given.values())
        opforge.executorch.lower(model.module(), arguments, path, input_names=list(given), output_names=outputs)
    return path


def outcome(name: str, engine: str) -> tuple[bool, str]:
    """Whether the engine gives the reference's results within the model's tolerance; otherwise why not."""
    model = MODELS[name]
    right = expected(name)
    try:
        loader: Any = find_engine(engine) if engine in OWN else process(engine)
        run = loader.load(_file(name, engine), threads=1).run
        for values, outputs in zip(model.inputs(), right, strict=True):
            got = run(values)
            result = compare(
                "unused",
                values,
                engines={engine: lambda _i, g=got: g, "expected": lambda _i, o=outputs: o},
                rtol=model.rtol,
                atol=model.atol,
            )
            bad = [row for row in result.rows if not row.passed]
            if bad:
                return False, f"output {bad[0].output}: {bad[0].detail}"
    except OpforgeError as problem:
        return False, str(problem)
    return True, ""
