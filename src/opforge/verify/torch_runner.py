"""A torch module as one of the engines of compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opforge.engines import Array
from opforge.engines._inputs import check_names
from opforge.errors import ArgumentError
from opforge.onnx._read import read_model

__all__ = ["torch_runner"]


def torch_runner(module: Any, model: str | Path) -> Callable[[Mapping[str, Array]], dict[str, Array]]:  # noqa: ANN401
    """Wrap ``module`` so that it takes and gives arrays by the names of the ONNX ``model``'s inputs and outputs.

    Args:
        module: a ``torch.nn.Module`` (or callable) taking the inputs in the model's order.
        model: ONNX file whose names are used.
    """
    graph = read_model(Path(model), weights=False).graph
    initializers = {item.name for item in graph.initializer}
    names = [item.name for item in graph.input if item.name not in initializers]
    outputs = [item.name for item in graph.output]

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        from opforge.frameworks.torch._arrays import to_numpy, to_tensor

        check_names(inputs, names)
        if isinstance(module, torch.nn.Module):
            module.eval()
        with torch.no_grad():
            result = module(*(to_tensor(inputs[name]) for name in names))
        values = list(result.values()) if isinstance(result, Mapping) else result
        found = list(values) if isinstance(values, tuple | list) else [values]
        if len(found) < len(outputs):
            got = f"{len(found)} outputs"
            raise ArgumentError(
                "the module gives fewer outputs than the model", where="torch", expected=outputs, got=got
            )
        return {name: to_numpy(value) for name, value in zip(outputs, found, strict=False)}

    return run
