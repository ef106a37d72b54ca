"""Operators that compute along axes: softmax, reductions, normalisations, running sums, resizing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from opforge.engines.ncnn._builder import Blob, Builder, Refused, attribute, axis_of
from opforge.engines.ncnn._elementwise import Rule
from opforge.engines.ncnn._net import Param, Weight
from opforge.passes import _edit

__all__ = ["RULES"]

REDUCTIONS: Final = {
    "ReduceSum": 0,
    "ReduceSumSquare": 2,
    "ReduceMean": 3,
    "ReduceMax": 4,
    "ReduceMin": 5,
    "ReduceProd": 6,
    "ReduceL1": 7,
    "ReduceL2": 8,
    "ReduceLogSum": 9,
    "ReduceLogSumExp": 10,
}
"""Operator -> operation of Reduction."""


def _along(b: Builder, node: ir.Node, axis: int) -> Blob:
    """Return the input in a form that has this axis."""
    value = node.inputs[0]
    return b.full(value) if axis % max(1, len(b.dims(value))) == 0 else b.blob(value)


def _softmax(b: Builder, node: ir.Node) -> None:
    axis = int(attribute(node, "axis", -1))
    x = _along(b, node, axis)
    params: dict[int, Param] = {0: axis_of(x, axis), 1: 1}
    if node.op_type == "Softmax":
        b.layer(node, "Softmax", [x], params)
        return
    y = b.add("Softmax", [x], params, dims=x.dims, lead=x.lead, name=f"{node.outputs[0].name}__softmax")
    b.layer(node, "UnaryOp", [y], {0: 8})


def _reduce(b: Builder, node: ir.Node) -> None:
    value, rank = node.inputs[0], len(b.dims(node.inputs[0]))
    given = node.inputs[1] if len(node.inputs) > 1 else None
    axes = sorted(a % rank for a in b.numbers(given, "axes")) if given is not None else []
    if not axes:
        if int(attribute(node, "noop_with_empty_axes", 0)):
            b.give(node.outputs[0], b.blob(value))
            return
        axes = list(range(rank))
    x = b.full(value) if 0 in axes else b.blob(value)
    keep, dims = bool(attribute(node, "keepdims", 1)), b.dims(node.outputs[0])
    params: dict[int, Param] = {
        0: REDUCTIONS[node.op_type],
        1: 0,
        3: tuple(axis_of(x, axis) for axis in axes),
        4: int(keep),
        5: 1,
    }
    b.layer(node, "Reduction", [x], params, lead=x.lead if len(dims) > x.lead else 0)


def _layer_norm(b: Builder, node: ir.Node) -> None:
    rank = len(b.dims(node.inputs[0]))
    axis = int(attribute(node, "axis", -1)) % rank
    if any(o.uses() for o in node.outputs[1:]):
        raise Refused("mean or deviation as outputs")
    x = b.blob(node.inputs[0])
    sizes = [d.constant for d in x.dims[axis:]]
    if axis < x.lead or axis - x.lead + len(sizes) != len(x.sizes) or (len(sizes) == len(x.sizes) and len(sizes) > 1):
        raise Refused("over all axes")
    if any(size is None for size in sizes):
        raise Refused("over axes of open size")
    count = int(np.prod([size or 0 for size in sizes]))
    rms = node.op_type == "RMSNormalization"
    scale = b.weight(node.inputs[1], "the scale") if len(node.inputs) > 1 and node.inputs[1] is not None else None
    held = node.inputs[2] if not rms and len(node.inputs) > 2 else None
    shift = None if held is None else b.weight(held, "the shift")
    for array in (scale, shift):
        if array is not None and array.size not in (1, count):
            raise Refused("a scale or shift that is broadcast")
    weights = [np.ones(count, np.float32) if scale is None else np.broadcast_to(scale.reshape(-1), (count,))]
    if not rms:
        weights.append(np.zeros(count, np.float32) if shift is None else np.broadcast_to(shift.reshape(-1), (count,)))
    params: dict[int, Param] = {0: count, 1: float(attribute(node, "epsilon", 1e-5)), 2: 1}
    b.layer(node, "RMSNorm" if rms else "LayerNorm", [x], params, [Weight(w, tagged=False) for w in weights])


def _instance_norm(b: Builder, node: ir.Node) -> None:
    scale, shift = (b.weight(v, "scale and shift").reshape(-1) for v in node.inputs[1:3])
    x = b.inner(node.inputs[0], "InstanceNormalization")
    if len(x.sizes) < 3:
        raise Refused("one spatial axis")
    params: dict[int, Param] = {0: scale.size, 1: float(attribute(node, "epsilon", 1e-5)), 2: 1}
    b.layer(node, "InstanceNorm", [x], params, [Weight(scale, tagged=False), Weight(shift, tagged=False)])


def _group_norm(b: Builder, node: ir.Node) -> None:
    scale, shift = (b.weight(v, "scale and shift").reshape(-1) for v in node.inputs[1:3])
    x = b.inner(node.inputs[0], "GroupNormalization")
    channels = x.sizes[0].constant
    if scale.size != channels:
        raise Refused("a scale per group")
    groups = int(attribute(node, "num_groups"))
    node.outputs[0].meta.setdefault("dims", list(x.dims))  # onnx infers none
    params: dict[int, Param] = {0: groups, 1: scale.size, 2: float(attribute(node, "epsilon", 1e-5)), 3: 1}
    b.layer(node, "GroupNorm", [x], params, [Weight(scale, tagged=False), Weight(shift, tagged=False)])


def _lrn(b: Builder, node: ir.Node) -> None:
    params: dict[int, Param] = {
        0: 0,
        1: int(attribute(node, "size")),
        2: float(attribute(node, "alpha", 1e-4)),
        3: float(attribute(node, "beta", 0.75)),
        4: float(attribute(node, "bias", 1.0)),
    }
    x = b.inner(node.inputs[0], "LRN")
    if len(x.sizes) != 3 or int(attribute(node, "size")) % 2 == 0:
        raise Refused("other than two spatial axes, or an even size")
    b.layer(node, "LRN", [x], params)


def _cumsum(b: Builder, node: ir.Node) -> None:
    if int(attribute(node, "exclusive", 0)) or int(attribute(node, "reverse", 0)):
        raise Refused("exclusive or reverse")
    (axis,) = b.numbers(node.inputs[1], "the axis")
    x = _along(b, node, axis)
    b.layer(node, "CumulativeSum", [x], {0: axis_of(x, axis)})


_MODES: Final = {"nearest": 1, "linear": 2, "cubic": 3}
_COORDINATES: Final = ("half_pixel", "pytorch_half_pixel", "align_corners")
_PLAIN: Final = {
    "antialias": 0,
    "exclude_outside": 0,
    "keep_aspect_ratio_policy": "stretch",
    "cubic_coeff_a": -0.75,
}
"""Attributes of Resize that ncnn knows in one value only."""


def _resize(b: Builder, node: ir.Node) -> None:
    x = b.inner(node.inputs[0], "Resize")
    mode, coordinates = (
        attribute(node, "mode", "nearest"),
        attribute(node, "coordinate_transformation_mode", "half_pixel"),
    )
    before, after = x.dims, b.dims(node.outputs[0])
    if len(x.sizes) != 3 or before[1] != after[1]:
        raise Refused("other than two spatial axes")
    for name, value in _PLAIN.items():
        if attribute(node, name, value) != value:
            raise Refused(f"{name} = {attribute(node, name)}")
    given = _edit.array(node.inputs[2]) if len(node.inputs) > 2 else None
    factors = [float(v) for v in given.reshape(-1)[-2:]] if given is not None and given.size > 1 else None
    whole = factors is not None and all(f >= 1 and f == int(f) for f in factors)
    if mode == "nearest":
        rounding = attribute(node, "nearest_mode", "round_prefer_floor")
        plain = coordinates == "asymmetric" and rounding == "floor"
        # Where the factor is a whole number, both ways of counting give the same neighbour.
        if not plain and not (whole and coordinates == "half_pixel" and rounding.startswith("round_prefer")):
            raise Refused(f"nearest with {coordinates}, {rounding}")
    elif coordinates not in _COORDINATES:
        raise Refused(f"{mode} with {coordinates}")
    params: dict[int, Param] = {0: _MODES[mode], 6: int(coordinates == "align_corners")}
    sizes = [d.constant for d in after[2:]]
    if coordinates == "pytorch_half_pixel" and 1 in sizes and sizes != [d.constant for d in before[2:]]:
        raise Refused("pytorch_half_pixel to a size of 1, which takes the first element there")
    if None not in sizes:
        _require_factors(factors, [d.constant for d in before[2:]], sizes)
        params |= {3: sizes[0] or 0, 4: sizes[1] or 0}
    elif whole and factors is not None:
        params |= {1: factors[0], 2: factors[1]}
    else:
        raise Refused("sizes that are computed, or an axis of open size times a broken number")
    b.layer(node, "Interp", [x], params)


def _require_factors(
    factors: Sequence[float] | None, before: Sequence[int | None], after: Sequence[int | None]
) -> None:
    """Refuse factors that do not give whole sizes: ONNX counts with the factor, versions of ncnn with either."""
    for factor, size, made in zip(factors or (), before, after, strict=False):
        if size is None or made is None or abs(factor * size - made) > 1e-4:
            raise Refused(f"{size} times {factor:g} is no whole number, and versions of ncnn count otherwise")


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _layer_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LRN": _lrn,
    "CumSum": _cumsum,
    "Resize": _resize,
}
"""Operator -> what adds its layers."""
