"""Inputs with a value of their own (an initializer) are constants: in old models every weight is also an input."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "freeze_inputs"
REQUIRES: tuple[str, ...] = ()
ENSURES: tuple[str, ...] = ()


def call(model: ir.Model) -> int:
    """Take such inputs off the list of the model's inputs."""
    frozen = [v for v in model.graph.inputs if v.name in model.graph.initializers]
    for value in frozen:
        model.graph.inputs.remove(value)
    return len(frozen)
