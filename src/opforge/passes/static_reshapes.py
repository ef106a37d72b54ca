"""The target of a Reshape becomes a constant wherever it follows from the input's dimensions.

``Reshape(x, Concat(batch, length, -1, 32))`` is ``Reshape(x, [0, 0, -1, 32])``: the chain of Shape, Gather and
Concat before it falls away.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._dims import Dim
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "static_reshapes"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()


def _target(source: list[Dim], target: list[Dim]) -> list[int] | None:
    """Write target dimensions as numbers, 0 (as in the input) and at most one -1."""
    out: list[int] = []
    for k, dim in enumerate(target):
        if dim.constant is not None and dim.constant != 0:
            out.append(dim.constant)
        elif k < len(source) and dim == source[k]:
            out.append(0)
        elif dim.constant is None:
            out.append(-1)
        else:
            return None
    return out if out.count(-1) <= 1 else None


def call(model: ir.Model) -> int:
    """Replace targets that are computed."""
    count = 0
    for node in _edit.nodes(model):
        if not _edit.is_op(node, "Reshape") or _edit.array(node.inputs[1]) is not None:
            continue
        source, result = dims_of(node.inputs[0]), node.outputs[0].meta.get("dims")
        target = _target(source, result) if source is not None and result is not None else None
        if target is None:
            continue
        constant = _edit.add_constant(model.graph, np.array(target, np.int64), f"{node.outputs[0].name}__shape")
        constant.meta["known"] = None
        _edit.replace_node(node, "Reshape", [node.inputs[0], constant], {"allowzero": 0})
        count += 1
    return count
