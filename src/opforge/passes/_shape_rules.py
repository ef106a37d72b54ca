"""Symbolic output dimensions of the operators where onnx's own inference forgets names (one row per operator)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._dims import Dim, presumably_equal, unknown

__all__ = ["RULES", "broadcast", "window"]

Shape = list[Dim]
Known = list[Dim] | None
Rule = Callable[[ir.Node, Sequence[Shape | None], Sequence[Known]], Shape | None]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Broadcast as NumPy does.

    Sizes that are presumably equal are taken as equal, and the shorter expression is kept; of others nothing is known,
    since one of them may turn out to be 1.
    """
    rank = max((len(s) for s in shapes), default=0)
    out: Shape = []
    for axis in range(rank):
        met: Dim | None = None
        for shape in shapes:
            k = axis - (rank - len(shape))
            if k < 0 or shape[k] == 1:
                continue
            dim = shape[k]
            if met is None or met == dim:
                met = dim
            elif dim.constant is not None or met.constant is not None:
                met = dim if dim.constant is not None else met
            elif presumably_equal(met, dim):
                met = min((met, dim), key=lambda d: (len(str(d)), str(d)))
            else:
                met = unknown()
        out.append(met if met is not None else Dim.of(1))
    return out


def window(size: Dim, kernel: int, stride: int, pads: int, dilation: int = 1, *, ceil: bool = False) -> Dim:
    """Return the number of places of a sliding window."""
    span = size + (pads - (dilation * (kernel - 1) + 1))
    return (span + (stride - 1 if ceil else 0)) // stride + 1


def _same(size: Dim, stride: int) -> Dim:
    return (size + (stride - 1)) // stride


def _sliding(node: ir.Node, spatial: Shape, kernel: Sequence[int]) -> Shape:
    n = len(spatial)
    strides = _edit.attribute(node, "strides") or [1] * n
    dilations = _edit.attribute(node, "dilations") or [1] * n
    pads = _edit.attribute(node, "pads") or [0] * 2 * n
    auto = _edit.attribute(node, "auto_pad", "NOTSET")
    ceil = bool(_edit.attribute(node, "ceil_mode", 0))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return [_same(s, strides[k]) for k, s in enumerate(spatial)]
    if auto == "VALID":
        pads = [0] * 2 * n
    return [
        window(s, kernel[k], strides[k], pads[k] + pads[k + n], dilations[k], ceil=ceil) for k, s in enumerate(spatial)
    ]


def _conv(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    x, w = shapes[0], shapes[1]
    if x is None or w is None:
        return None
    kernel = [d.constant for d in w[2:]]
    if any(k is None for k in kernel):
        return None
    return [x[0], w[0], *_sliding(node, x[2:], [int(k or 0) for k in kernel])]


def _conv_transpose(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    x, w = shapes[0], shapes[1]
    if (
        x is None
        or w is None
        or _edit.attribute(node, "output_shape")
        or _edit.attribute(node, "auto_pad", "NOTSET") != "NOTSET"
    ):
        return None
    n = len(x) - 2
    strides = _edit.attribute(node, "strides") or [1] * n
    dilations = _edit.attribute(node, "dilations") or [1] * n
    pads = _edit.attribute(node, "pads") or [0] * 2 * n
    extra = _edit.attribute(node, "output_padding") or [0] * n
    spatial = []
    for k in range(n):
        size = w[2 + k].constant
        if size is None:
            return None
        spatial.append((x[2 + k] - 1) * strides[k] + (dilations[k] * (size - 1) + 1 + extra[k] - pads[k] - pads[k + n]))
    return [x[0], w[1] * int(_edit.attribute(node, "group", 1)), *spatial]


def _pool(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    x, kernel = shapes[0], _edit.attribute(node, "kernel_shape")
    if x is None or _edit.attribute(node, "ceil_mode", 0):
        return None  # the last window may start in the padding: onnx's rule knows better
    return [*x[:2], *_sliding(node, x[2:], kernel)]


def _global_pool(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    x = shapes[0]
    return None if x is None else [*x[:2], *[Dim.of(1)] * (len(x) - 2)]


def _resize(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    x = shapes[0]
    if x is None or _edit.attribute(node, "axes"):
        return None
    if len(known) > 3 and (sizes := known[3]) is not None:
        return list(sizes)
    scales = _edit.array(node.inputs[2]) if len(node.inputs) > 2 else None
    if scales is None or len(scales) != len(x):
        return None
    if all(float(s).is_integer() for s in scales):
        return [d * int(s) for d, s in zip(x, scales, strict=True)]
    if all(d.constant is not None for d in x):
        return [Dim.of(int(float(d.constant or 0) * float(s))) for d, s in zip(x, scales, strict=True)]
    return [d if s == 1 else unknown() for d, s in zip(x, scales, strict=True)]


def _matmul(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    a, b = shapes[0], shapes[1]
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    return [*broadcast([a[:-2], b[:-2]]), a[-2], b[-1]]


def _reshape(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    x, target = shapes[0], known[1]
    if target is None:
        return None
    out: Shape = []
    for k, dim in enumerate(target):
        if dim == 0 and not _edit.attribute(node, "allowzero", 0):
            if x is None or k >= len(x):
                return None
            dim = x[k]
        out.append(dim)
    free = [k for k, d in enumerate(out) if d == -1]
    if not free:
        return out
    if x is None or len(free) > 1:
        return None
    total, rest = Dim.of(1), Dim.of(1)
    for d in x:
        total = total * d
    for k, d in enumerate(out):
        if k != free[0]:
            rest = rest * d
    quotient = total.divide(rest)
    out[free[0]] = quotient if quotient is not None else unknown()
    return out


def _expand(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    x, target = shapes[0], known[1]
    return None if x is None or target is None else broadcast([x, target])


def _filled(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    return None if known[0] is None else list(known[0])


def _range(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    start, limit, delta = (k[0] if k else None for k in known)
    if start is None or limit is None or delta is None or delta.constant != 1:
        return None
    return [limit - start]


def _concat(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    rows = [s for s in shapes if s is not None]
    if len(rows) != len(shapes):
        return None
    axis = int(_edit.attribute(node, "axis", 0)) % len(rows[0])
    out = [broadcast([[r[k]] for r in rows])[0] for k in range(len(rows[0]))]
    out[axis] = sum((r[axis] for r in rows[1:]), rows[0][axis])
    return out


def _slice(node: ir.Node, shapes: Sequence[Shape | None], known: Sequence[Known]) -> Shape | None:
    x = shapes[0]
    if x is None or len(known) < 3 or any(k is None for k in known[1:3]):
        return None
    starts, ends = known[1] or [], known[2] or []
    axes = known[3] if len(known) > 3 and node.inputs[3] is not None else [Dim.of(k) for k in range(len(starts))]
    steps = known[4] if len(known) > 4 and node.inputs[4] is not None else [Dim.of(1)] * len(starts)
    if axes is None or steps is None:
        return None
    out = list(x)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if axis.constant is None:
            return None
        k = axis.constant % len(x)
        out[k] = _span(x[k], start, end, step)
    return out


def _span(size: Dim, start: Dim, end: Dim, step: Dim) -> Dim:
    n, s, e, by = size.constant, start.constant, end.constant, step.constant
    if n is not None and s is not None and e is not None and by is not None and by:
        return Dim.of(len(range(*slice(s, None if by < 0 and e < -n else e, by).indices(n))))
    if by != 1 or s is None:
        return unknown()
    first = Dim.of(s) if s >= 0 else size + s
    if e is None:
        # Of a table, an end that is a length of another tensor is presumed to fit: more rows than it has would not
        # meet that tensor. One row would, and of an open size any number of rows may be there.
        return end - first if s >= 0 and (end == size or (n or 0) > 1) else unknown()
    if s < 0 <= e < 2**31 - 1:
        return unknown()
    last = size if e >= 2**31 - 1 else size + e if e < 0 else end
    # A number here would be one of a tensor that is long enough, which nobody knows: of N rows [0:3] are 3, or N.
    length = last - first
    return length if length.constant is None else unknown()


RULES: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "Resize": _resize,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Expand": _expand,
    "ConstantOfShape": _filled,
    "Range": _range,
    "Concat": _concat,
    "Slice": _slice,
}
