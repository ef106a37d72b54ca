"""Where ONNX's evaluator does not compute what ONNX says: standard operators that replace its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from opforge.engines._protocol import Array

__all__ = ["corrections"]

_TRAINING_MODE = 14
"""First opset whose BatchNormalization says by an attribute that it is in training."""


def corrections(opset: int) -> list[type[Any]]:
    """Return the classes for a model of this opset.

    BatchNormalization before opset 14 is in training where it has further outputs; the evaluator takes it to be
    wherever ``momentum`` is not None, which is always, and mixes the statistics of the batch in.
    """
    from onnx.reference.op_run import OpRun

    def _run(
        self: Any,  # noqa: ANN401 - OpRun
        x: Array,
        scale: Array,
        bias: Array,
        mean: Array,
        var: Array,
        epsilon: float = 1e-5,
        **_: object,
    ) -> tuple[Array, ...]:
        if len([name for name in self.onnx_node.output if name]) > 1:
            raise NotImplementedError("BatchNormalization in training, before opset 14")
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        factor, offset, middle, spread = (part.reshape(shape) for part in (scale, bias, mean, var))
        y = factor * (x - middle) / np.sqrt(spread + np.asarray(epsilon, x.dtype)) + offset
        return (y.astype(x.dtype),)

    if opset >= _TRAINING_MODE:
        return []
    return [type("BatchNormalization", (OpRun,), {"op_domain": "", "_run": _run})]
