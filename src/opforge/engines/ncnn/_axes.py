"""Operators that move, cut and join: their layers see axes, outermost first, as ncnn counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx_ir as ir

from opforge.engines.ncnn._builder import MOST_AXES, Blob, Builder, Refused, attribute, axis_of
from opforge.engines.ncnn._elementwise import Rule
from opforge.engines.ncnn._net import Param
from opforge.passes import _edit

__all__ = ["RULES"]

ORDERS: Final[dict[int, tuple[str, ...]]] = {
    1: ("w",),
    2: ("wh", "hw"),
    3: ("whc", "hwc", "wch", "cwh", "hcw", "chw"),
    4: tuple(
        "whdc hwdc wdhc dwhc hdwc dhwc whcd hwcd wchd cwhd hcwd chwd "
        "wdch dwch wcdh cwdh dcwh cdwh hdcw dhcw hcdw chdw dchw cdhw".split()
    ),
}
"""Number of axes -> what order_type of Permute means: the input's axes, innermost output axis first."""
_AXES: Final = {1: "w", 2: "hw", 3: "chw", 4: "cdhw"}


def _reshape(b: Builder, node: ir.Node) -> None:
    x, dims = b.raw(node.inputs[0]), b.dims(node.outputs[0])
    one = len(dims) > 1 and dims[0].constant == 1
    lead = int(one and (bool(x.lead or x.inside) or len(dims) > MOST_AXES))
    b.give(node.outputs[0], b.form(x, dims, lead))


def _transpose(b: Builder, node: ir.Node) -> None:
    value = node.inputs[0]
    rank = len(b.dims(value))
    perm = [int(p) for p in attribute(node, "perm", list(range(rank))[::-1])]
    x, dims = b.blob(value), b.dims(node.outputs[0])
    moved = 0
    if rank > MOST_AXES or (x.lead and perm[0] == 0):
        x = b.inner(value, "Transpose")
        moved = perm.index(0)  # where the batch goes
        perm = [p - 1 for p in perm if p != 0]
        lead = int(not moved)
    else:
        x, lead = b.full(value), 0
    kept = [p for p in perm if x.sizes[p].constant != 1]
    if kept == sorted(kept) and not moved:  # only axes of size 1 move
        b.give(node.outputs[0], b.form(x, dims, lead))
        return
    order = "".join(_AXES[len(perm)][p] for p in reversed(perm))
    made = Blob(b.name(node.outputs[0].name or "permuted"), dims, lead, inside=moved)
    b.add_many("Permute", [x], [made], {0: ORDERS[len(perm)].index(order)})
    b.give(node.outputs[0], made)


def _concat(b: Builder, node: ir.Node) -> None:
    dims = b.dims(node.outputs[0])
    axis = int(attribute(node, "axis", 0)) % len(dims)
    blobs = [b.blob(v) for v in node.inputs]
    lead = int(axis > 0 and (len(dims) > MOST_AXES or any(x.lead for x in blobs)))
    held = [b.inner(v, "Concat") if lead else b.full(v) for v in node.inputs]
    b.layer(node, "Concat", held, {0: axis - lead}, lead=lead)


def _slice(b: Builder, node: ir.Node) -> None:
    dims, value = b.dims(node.inputs[0]), node.inputs[0]
    starts, ends = b.numbers(node.inputs[1], "starts"), b.numbers(node.inputs[2], "ends")
    given = node.inputs[3] if len(node.inputs) > 3 else None
    axes = b.numbers(given, "axes") if given is not None else list(range(len(starts)))
    steps = b.numbers(node.inputs[4], "steps") if len(node.inputs) > 4 and node.inputs[4] is not None else []
    if any(step != 1 for step in steps):
        raise Refused("steps other than 1")
    rows = []
    for start, end, axis in zip(starts, ends, axes, strict=True):
        if b.dims(node.outputs[0])[axis % len(dims)] == dims[axis % len(dims)]:
            continue
        size = dims[axis % len(dims)].constant
        if size is not None:
            first, last, _ = slice(start, end, 1).indices(size)
        elif end == 0 or (start < 0 <= end < 2**31 - 1):
            raise Refused("a part of an axis of open size that depends on it")
        else:
            first, last = start, end if end < 2**31 - 1 else -233
        rows.append((axis % len(dims), first, last))
    if not rows:
        b.give(node.outputs[0], b.blob(value))
        return
    x = b.raw(value)
    if x.lead and any(axis == 0 for axis, _, _ in rows):
        x = b.full(value)
    params: dict[int, Param] = {
        9: tuple(first for _, first, _ in rows),
        10: tuple(last for _, _, last in rows),
        11: tuple(axis_of(x, axis) for axis, _, _ in rows),
    }
    made = Blob(b.name(node.outputs[0].name or "part"), b.dims(node.outputs[0]), x.lead, inside=x.inside)
    b.add_many("Crop", [x], [made], params)
    b.give(node.outputs[0], made)


def _split(b: Builder, node: ir.Node) -> None:
    value, axis = node.inputs[0], int(attribute(node, "axis", 0))
    x = b.raw(value)
    if x.lead and axis % len(x.dims) == 0:
        x = b.full(value)
    place = axis_of(x, axis)
    sizes = [b.dims(o)[axis % len(x.dims)].constant for o in node.outputs]
    if any(not size for size in sizes):
        raise Refused("parts of open or no size")
    made = [Blob(b.name(o.name or "part"), b.dims(o), x.lead, inside=x.inside) for o in node.outputs]
    b.add_many("Slice", [x], made, {0: tuple(int(s or 0) for s in sizes), 1: place})
    for output, blob in zip(node.outputs, made, strict=True):
        b.give(output, blob)


_PAD_MODES: Final = {"constant": 0, "edge": 1, "reflect": 2}
_PAD_IDS: Final = {"h": (0, 1), "w": (2, 3), "c": (7, 8), "d": (7, 8)}


def _pad(b: Builder, node: ir.Node) -> None:
    rank = len(b.dims(node.inputs[0]))
    pads = b.numbers(node.inputs[1], "pads")
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes, given = b.numbers(node.inputs[3], "axes"), pads
        pads = [0] * 2 * rank
        for k, axis in enumerate(axes):
            pads[axis % rank], pads[axis % rank + rank] = given[k], given[k + len(axes)]
    mode = attribute(node, "mode", "constant")
    if mode not in _PAD_MODES or min(pads) < 0:
        raise Refused(f"mode {mode}" if mode not in _PAD_MODES else "pads below 0, which cut")
    held = node.inputs[2] if len(node.inputs) > 2 else None
    fill = 0.0 if held is None else _edit.scalar(held)
    if fill is None or not np.isfinite(fill):
        raise Refused("a value that is no constant number")
    value = node.inputs[0]
    x = b.full(value) if pads[0] or pads[rank] else b.blob(value)
    names = _AXES[len(x.sizes)]
    params: dict[int, Param] = {4: _PAD_MODES[mode], 5: float(fill)}
    for k, name in enumerate(names):
        before, after = pads[k + x.lead], pads[k + x.lead + rank]
        if name == "c" and len(names) == MOST_AXES:
            if before or after:
                raise Refused("pads of the first of four axes")
            continue
        params[_PAD_IDS[name][0]], params[_PAD_IDS[name][1]] = before, after
    b.layer(node, "Padding", [x], params)


def _tile(b: Builder, node: ir.Node) -> None:
    repeats = b.numbers(node.inputs[1], "repeats")
    x = b.full(node.inputs[0]) if repeats[0] != 1 else b.blob(node.inputs[0])
    b.layer(node, "Tile", [x], {2: tuple(repeats[x.lead :])})


def _depth_to_space(b: Builder, node: ir.Node) -> None:
    depth_first = attribute(node, "mode", "DCR") == "DCR"
    x = b.inner(node.inputs[0], "DepthToSpace")
    b.layer(node, "PixelShuffle", [x], {0: int(attribute(node, "blocksize")), 1: int(depth_first)})


def _space_to_depth(b: Builder, node: ir.Node) -> None:
    depth_first = attribute(node, "mode", "DCR") == "DCR"
    x = b.inner(node.inputs[0], "SpaceToDepth")
    b.layer(node, "Reorg", [x], {0: int(attribute(node, "blocksize")), 1: int(depth_first)})


RULES: Final[Mapping[str, Rule]] = {
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": _transpose,
    "Concat": _concat,
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "Tile": _tile,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
"""Operator -> what adds its layers."""
