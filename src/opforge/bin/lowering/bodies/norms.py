"""Bodies of normalisations and what they are made of: batch statistics, and everything in double precision.

The kernels of these operators are for f32; ONNX's own bodies would compute statistics of doubles in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from opforge.bin.lowering.bodies._writer import Body
from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["BODIES"]

Rule = Callable[[Body, ir.Node], "list[str] | None"]


def _is_double(node: ir.Node) -> bool:
    return node.inputs[0] is not None and node.inputs[0].dtype == ir.DataType.DOUBLE


def _rank(node: ir.Node) -> int | None:
    dims = dims_of(node.inputs[0])
    return None if dims is None else len(dims)


def _doubles(rule: Rule) -> Rule:
    return lambda b, node: rule(b, node) if _is_double(node) else None


def _epsilon(b: Body, node: ir.Node) -> str:
    return b.number(float(_edit.attribute(node, "epsilon", 1e-5)), b.inputs[0])


def _centred(b: Body, x: str, axes: Sequence[int]) -> tuple[str, str, str]:
    """Return the mean over ``axes``, x without it, and the variance."""
    over = b.integers(*axes)
    mean = b.op("ReduceMean", x, over, keepdims=1)
    centred = b.op("Sub", x, mean)
    return mean, centred, b.op("ReduceMean", b.op("Mul", centred, centred), over, keepdims=1)


def _along_channels(b: Body, value: str, rank: int) -> str:
    """[C] so that it meets axis 1."""
    return b.op("Unsqueeze", value, b.integers(*range(1, rank - 1))) if rank > 2 else value


def _batch_norm(b: Body, node: ir.Node) -> list[str] | None:
    rank, training = _rank(node), bool(_edit.attribute(node, "training_mode", 0))
    if rank is None or rank < 1 or not (training or _is_double(node)):
        return None
    x, scale, shift, mean, variance = b.inputs
    wide = [_along_channels(b, v, rank) for v in (scale, shift)]
    if training:
        old = mean, variance
        axes = [k for k in range(rank) if k != 1]
        kept, centred, spread = _centred(b, x, axes)
        outputs = []
        momentum = float(_edit.attribute(node, "momentum", 0.9))
        for before, now in zip(old, (kept, spread), strict=True):
            flat = b.op("CastLike", b.op("Reshape", now, b.integers(-1)), before)
            a, c = b.number(momentum, before), b.number(1 - momentum, before)
            outputs.append(b.op("Add", b.op("Mul", before, a), b.op("Mul", flat, c)))
    else:
        centred = b.op("Sub", x, _along_channels(b, mean, rank))
        spread, outputs = _along_channels(b, variance, rank), []
    root = b.op("Sqrt", b.op("Add", spread, _epsilon(b, node)))
    y = b.op("Add", b.op("Mul", b.op("Div", centred, root), wide[0]), wide[1])
    return [y, *outputs]


def _layer_norm(b: Body, node: ir.Node) -> list[str] | None:
    rank = _rank(node)
    if rank is None:
        return None
    axis = int(_edit.attribute(node, "axis", -1)) % rank
    mean, centred, variance = _centred(b, b.inputs[0], range(axis, rank))
    inverse = b.op("Reciprocal", b.op("Sqrt", b.op("Add", variance, _epsilon(b, node))))
    y = b.op("Mul", b.op("Mul", centred, inverse), b.inputs[1])
    if b.has(2):
        y = b.op("Add", y, b.inputs[2])
    kind = int(_edit.attribute(node, "stash_type", 1))
    return [y, b.cast(mean, kind), b.cast(inverse, kind)]


def _rms_norm(b: Body, node: ir.Node) -> list[str] | None:
    rank = _rank(node)
    if rank is None:
        return None
    x, axis = b.inputs[0], int(_edit.attribute(node, "axis", -1)) % rank
    square = b.op("ReduceMean", b.op("Mul", x, x), b.integers(*range(axis, rank)), keepdims=1)
    root = b.op("Sqrt", b.op("Add", square, _epsilon(b, node)))
    return [b.op("Mul", b.op("Div", x, root), b.inputs[1])]


def _instance_norm(b: Body, node: ir.Node) -> list[str] | None:
    rank = _rank(node)
    if rank is None:
        return None
    _, centred, variance = _centred(b, b.inputs[0], range(2, rank))
    y = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, _epsilon(b, node))))
    scale, shift = (_along_channels(b, v, rank) for v in b.inputs[1:3])
    return [b.op("Add", b.op("Mul", y, scale), shift)]


def _group_norm(b: Body, node: ir.Node) -> list[str] | None:
    rank = _rank(node)
    if rank is None:
        return None
    x = b.inputs[0]
    grouped = b.op("Reshape", x, b.integers(0, int(_edit.attribute(node, "num_groups")), -1))
    _, centred, variance = _centred(b, grouped, [2])
    y = b.op("Div", centred, b.op("Sqrt", b.op("Add", variance, _epsilon(b, node))))
    scale, shift = (_along_channels(b, v, rank) for v in b.inputs[1:3])
    return [b.op("Add", b.op("Mul", b.op("Reshape", y, b.op("Shape", x)), scale), shift)]


def _softmax(b: Body, node: ir.Node) -> list[str]:
    x, over = b.inputs[0], b.integers(int(_edit.attribute(node, "axis", -1)))
    shifted = b.op("Sub", x, b.op("ReduceMax", x, over, keepdims=1))
    powers = b.op("Exp", shifted)
    total = b.op("ReduceSum", powers, over, keepdims=1)
    if node.op_type == "LogSoftmax":
        return [b.op("Sub", shifted, b.op("Log", total))]
    return [b.op("Div", powers, total)]


def _global_pool(reduction: str) -> Rule:
    def rule(b: Body, node: ir.Node) -> list[str] | None:
        rank = _rank(node)
        return None if rank is None else [b.op(reduction, b.inputs[0], b.integers(*range(2, rank)), keepdims=1)]

    return rule


BODIES = {
    ("", "BatchNormalization"): _batch_norm,
    ("", "LayerNormalization"): _doubles(_layer_norm),
    ("", "RMSNormalization"): _doubles(_rms_norm),
    ("", "InstanceNormalization"): _doubles(_instance_norm),
    ("", "GroupNormalization"): _doubles(_group_norm),
    ("", "Softmax"): _doubles(_softmax),
    ("", "LogSoftmax"): _doubles(_softmax),
    ("", "GlobalAveragePool"): _doubles(_global_pool("ReduceMean")),
    ("", "GlobalMaxPool"): _doubles(_global_pool("ReduceMax")),
}
