"""A torch module as one of the engines of compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opforge.engines import Array
from opforge.errors import ArgumentError

__all__ = ["torch_runner"]


def torch_runner(module: Any, model: str | Path) -> Callable[[Mapping[str, Array]], dict[str, Array]]:  # noqa: ANN401
    """Wrap ``module`` so that it takes and gives arrays by the names of the ONNX ``model``'s inputs and outputs.

    Args:
        module: a ``torch.nn.Module`` (or callable) taking the inputs in the model's order.
        model: ONNX file whose names are used.
    """
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    initializers = {item.name for item in graph.initializer}
    names = [item.name for item in graph.input if item.name not in initializers]
    outputs = [item.name for item in graph.output]

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        missing = [name for name in names if name not in inputs]
        if missing:
            raise ArgumentError("inputs are missing", where="torch", expected=names, got=sorted(inputs))
        if isinstance(module, torch.nn.Module):
            module.eval()
        with torch.no_grad():
            result = module(*(torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in names))
        values = result if isinstance(result, tuple | list) else list(result.values()) if isinstance(result, Mapping) else [result]
        if len(values) < len(outputs):
            raise ArgumentError("the module gives fewer outputs than the model", where="torch", expected=outputs, got=f"{len(values)} outputs")
        return {name: value.detach().numpy() for name, value in zip(outputs, values, strict=False)}

    return run
