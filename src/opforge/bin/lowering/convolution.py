"""Which convolutions run in blocks of 16 channels, and by which algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opforge.bin.lowering.graph import FLOAT, Graph, Node, Value
from opforge.bin.lowering.select import ELEMENTWISE
from opforge.bin.lowering.weights import is_half
from opforge.bin.packing import winograd_fits
from opforge.bin.program import Layout
from opforge.passes._dims import Dim

__all__ = ["Choices", "block_convolutions", "halo_of"]

FIRST_CHANNELS = 4
"""A plain image of so few channels is read as it lies."""
MERGED = 16
"""Most groups of a convolution that become one."""
FOLLOWERS = ("MaxPool", "AveragePool", "GlobalAveragePool", "Resize", "Concat")
"""Nodes that stay in blocks."""
NARROW_WINOGRAD = 20_000
"""Channels in times channels out up to which weights of a half type are transformed: 8 times their bytes, in f32."""
TYPICAL = 64
"""Height or width that is assumed where the model leaves it open."""


Choices = Mapping[str, Mapping[str, int | str]]
"""What tuning chose: name of a convolution's result -> attributes of its node."""


def block_convolutions(graph: Graph, choices: Choices | None = None, precision: str = "model") -> None:
    """Replace convolutions that the blocked kernels take; their outputs become blocked."""
    chosen = choices or {}
    for k, node in enumerate(graph.nodes):
        if node.domain == "" and node.op in ("Conv", "ConvTranspose"):
            made = _conv(node, chosen.get(node.output.name, {}), precision) if node.op == "Conv" else _transposed(node)
            if made is not None:
                graph.nodes[k] = made


def _constant(node: Node, index: int) -> np.ndarray[Any, Any] | None:
    value = node.inputs[index] if len(node.inputs) > index else None
    return value.data if value is not None and value.dtype == FLOAT else None


def _common(node: Node) -> tuple[Value, np.ndarray[Any, Any], list[int]] | None:
    """Return input, weights and pads of a node that may be blocked."""
    x, weight, a = node.inputs[0], _constant(node, 1), node.attributes
    if x is None or x.dtype != FLOAT or x.rank != 4 or weight is None or a.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    if len(node.inputs) > 2 and node.inputs[2] is not None and _constant(node, 2) is None:
        return None
    pads, group = list(a.get("pads") or [0, 0, 0, 0]), int(a.get("group", 1))
    if any(not 0 <= p <= 200 for p in pads) or not weight.size or group < 1 or weight.shape[0] % group:
        return None
    if list(a.get("kernel_shape") or weight.shape[2:]) != list(weight.shape[2:]):
        return None  # the runtime says what is wrong
    return x, weight, pads


def _conv(node: Node, chosen: Mapping[str, int | str], precision: str) -> Node | None:
    found = _common(node)
    if found is None:
        return None
    x, weight, pads = found
    a = node.attributes
    group, strides, dilations = (
        int(a.get("group", 1)),
        list(a.get("strides") or [1, 1]),
        list(a.get("dilations") or [1, 1]),
    )
    out, inner, kh, kw = weight.shape
    channels = inner * group
    depthwise = group == channels == out and group > 1
    if group != 1 and not depthwise:
        merged = _merged_groups(weight, group)
        if merged is None:
            return None
        weight, group = merged
    algorithm, packing = "direct", "conv16"
    if depthwise:
        algorithm, packing = "depthwise", "depthwise16"
    elif group > 1:
        pass
    elif channels <= FIRST_CHANNELS and dilations == [1, 1] and not _will_be_blocked(x):
        algorithm, packing = "first", "first16"
    elif (kh, kw) == (3, 3) and strides == dilations == [1, 1]:
        large = channels * out > NARROW_WINOGRAD
        pays = _pays(node, channels, out) and not (large and (precision != "model" or is_half(weight)))
        default = "winograd" if pays else "direct"
        if chosen.get("algorithm", default) == "winograd":
            algorithm, packing = "winograd", "winograd16"
    attributes = {
        "algorithm": algorithm,
        "kernel_shape": [kh, kw],
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "channels_in": channels,
        "channels_out": out,
    }
    if group > 1 and not depthwise:
        attributes["group"] = group
    attributes["key"] = node.output.name
    attributes.update({k: v for k, v in chosen.items() if k != "algorithm"})
    return _made("Conv", node, x, weight, packing, attributes)


def _merged_groups(weight: np.ndarray[Any, Any], group: int) -> tuple[np.ndarray[Any, Any], int] | None:
    """Join groups until each has whole blocks of 16 channels on both sides; weights between joined ones are zero.

    Up to `MERGED` groups: the products with zeros cost less than narrow groups one by one.
    """
    out, inner = weight.shape[0] // group, weight.shape[1]
    for join in (n for n in range(1, MERGED + 1) if group % n == 0):
        if join == group or (join * inner % 16 == 0 and join * out % 16 == 0):
            wide = np.zeros((weight.shape[0], join * inner, *weight.shape[2:]), weight.dtype)
            for o in range(weight.shape[0]):
                first = o // out % join * inner
                wide[o, first : first + inner] = weight[o]
            return wide, group // join
    return None


def _will_be_blocked(x: Value) -> bool:
    """Tell whether ``x`` is blocked or comes by elementwise nodes and pools from what is."""
    seen, stack = set(), [x]
    while stack:
        value = stack.pop()
        if value.is_blocked:
            return True
        node = value.producer
        if node is not None and value not in seen and (node.is_made(ELEMENTWISE) or node.op in FOLLOWERS):
            stack += [v for v in node.inputs if v is not None and v.data is None]
        seen.add(value)
    return False


def _pays(node: Node, channels: int, out: int) -> bool:
    dims = node.output.dims
    sizes = [TYPICAL if d.constant is None else d.constant for d in dims[2:]] if dims is not None else [TYPICAL] * 2
    return winograd_fits(channels, out, sizes[0], sizes[1])


def _transposed(node: Node) -> Node | None:
    found = _common(node)
    if found is None:
        return None
    x, weight, pads = found
    a = node.attributes
    plain = (
        a.get("group", 1) == 1
        and list(a.get("dilations") or [1, 1]) == [1, 1]
        and not any(pads)
        and not any(a.get("output_padding") or [])
        and not a.get("output_shape")
    )
    if not plain or weight.shape[2:] != (2, 2) or list(a.get("strides") or [1, 1]) != [2, 2]:
        return None
    attributes = {
        "kernel_shape": [2, 2],
        "strides": [2, 2],
        "channels_in": weight.shape[0],
        "channels_out": weight.shape[1],
    }
    return _made("ConvTranspose", node, x, weight, "deconv16", attributes)


def _made(
    op: str, node: Node, x: Value, weight: np.ndarray[Any, Any], packing: str, attributes: dict[str, Any]
) -> Node:
    source = node.inputs[1]
    assert source is not None
    packed = Value(source.name, FLOAT, [Dim.of(d) for d in weight.shape], weight, packing=packing)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    node.output.layout = Layout("c16")
    return Node("opforge", op, 1, [x, packed, bias], node.outputs, attributes, node.origin)


def halo_of(node: Node, x: Value) -> tuple[int, int, int, int]:
    """Return the zeros (top, left, bottom, right) that a node wants to read around its blocked input ``x``."""
    if not node.is_made("Conv", "Pool") or node.inputs[0] is not x or not x.is_blocked:
        return (0, 0, 0, 0)
    top, left, bottom, right = node.attributes["pads"]
    if node.is_made("Pool"):
        return (0, 0, 0, 0)  # pools skip what is padding
    if node.attributes["algorithm"] == "winograd":
        height, width = x.dims[2:] if x.dims is not None else (None, None)
        bottom, right = _tile_rest(height, top, bottom), _tile_rest(width, left, right)
    return (top, left, bottom, right)


def _tile_rest(size: Dim | None, before: int, after: int) -> int:
    """Rows behind the image that tiles of 4 outputs read: in all 4*ceil(outputs/4)+2, from ``before`` rows above on."""
    n = size.constant if size is not None else None
    return after + 3 if n is None else max(after, 4 * -(-(n + before + after - 2) // 4) + 2 - before - n)
