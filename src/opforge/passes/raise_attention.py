"""MatMul, Softmax, MatMul with its scalings, mask and transposes becomes one Attention node.

Where queries, keys and values come as [batch, length, heads*depth] and are only split into heads, the node reads and
writes that form and the transposes go; else it takes [batch, heads, length, depth].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._attention_parts import is_triangle, unrepeated
from opforge.passes._match import producer
from opforge.passes.infer_shapes import dims_of

__all__ = ["ENSURES", "NAME", "NAN_ROWS", "REQUIRES", "call"]

NAME = "raise_attention"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()

NAN_ROWS = "opforge.nan_rows"
"""Metadata of an Attention node whose rows are NaN, not 0, where the mask hides all keys."""

HEADS_SECOND, KEYS_LAST, SWAP_LAST = [0, 2, 1, 3], [0, 2, 3, 1], [0, 1, 3, 2]


@dataclass
class _Found:
    last: ir.Node
    q: ir.Value
    k: ir.Value
    v: ir.Value
    mask: ir.Value | None
    scale: float
    keys_transposed: list[int]
    nodes: list[ir.Node] = field(default_factory=list)
    causal: bool = False
    nan_rows: bool = False


def _unscale(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    """Strip multiplications by numbers."""
    factor = 1.0
    while (node := producer(value, "Mul", "Div")) is not None:
        a, b = node.inputs[0], node.inputs[1]
        number = _edit.scalar(b)
        if number is None and node.op_type == "Mul":
            a, number = b, _edit.scalar(a)
        if not number:
            break
        factor, value = (factor * number if node.op_type == "Mul" else factor / number), a
    return value, factor


def _is_finite(mask: ir.Value | None) -> bool:
    """Tell whether a mask can hold no infinity: then no row of probabilities is NaN of its own."""
    if mask is None:
        return True
    data = _edit.array(mask)
    if data is not None:
        return bool(np.all(np.isfinite(data)))
    node = mask.producer()
    if _edit.is_op(node, "Where") and node is not None:
        return all(_edit.array(v) is not None and _is_finite(v) for v in node.inputs[1:])
    if _edit.is_op(node, "Unsqueeze", "Expand", "Reshape") and node is not None:
        return _is_finite(node.inputs[0])
    return False


def _consumer(probabilities: ir.Value) -> tuple[ir.Node, bool] | None:
    """Return the product with the values, and whether NaN is replaced by 0 before it."""
    users = {u.node for u in probabilities.uses()}
    if len(users) == 1 and not probabilities.is_graph_output():
        node = users.pop()
        return (node, False) if _edit.is_op(node, "MatMul") and node.inputs[0] is probabilities else None
    select = next((n for n in users if _edit.is_op(n, "Where")), None)
    test = next((n for n in users if _edit.is_op(n, "IsNaN")), None)
    if len(users) != 2 or select is None or test is None or probabilities.is_graph_output():
        return None
    if (
        select.inputs[0] is not test.outputs[0]
        or _edit.scalar(select.inputs[1]) != 0.0
        or select.inputs[2] is not probabilities
    ):
        return None
    reader = _edit.only_consumer(select.outputs[0])
    fits = reader is not None and _edit.is_op(reader, "MatMul") and reader.inputs[0] is select.outputs[0]
    return (reader, True) if fits and reader is not None else None


def _scores(value: ir.Value | None) -> tuple[ir.Node, ir.Value | None, float] | None:
    """Read the input of a softmax: the product of queries and keys, the mask, the factor."""
    mask: ir.Value | None = None
    plus = producer(value, "Add")
    if plus is not None:
        for scores, other in (plus.inputs, plus.inputs[::-1]):
            inner, factor = _unscale(scores)
            product = producer(inner, "MatMul")
            if product is not None:
                mask = other
                return product, mask, factor
        return None
    inner, factor = _unscale(value)
    product = producer(inner, "MatMul")
    return None if product is None else (product, None, factor)


def _match(softmax: ir.Node) -> _Found | None:
    dims = dims_of(softmax.outputs[0])
    if softmax.outputs[0].dtype == ir.DataType.DOUBLE:
        return None  # the runtime's node computes in f32
    if dims is None or len(dims) != 4 or _edit.attribute(softmax, "axis", -1) not in (-1, 3):
        return None
    after, before = _consumer(softmax.outputs[0]), _scores(softmax.inputs[0])
    if after is None or before is None:
        return None
    last, cleaned = after
    product, mask, factor = before
    q, q_factor = _unscale(product.inputs[0])
    keys, k_factor = _unscale(product.inputs[1])
    turn = producer(keys, "Transpose")
    perm = _edit.attribute(turn, "perm") if turn is not None else None
    v = last.inputs[1]
    if turn is None or perm not in (SWAP_LAST, KEYS_LAST) or q is None or v is None or turn.inputs[0] is None:
        return None
    scores = product.outputs[0]
    if mask is not None and (mask.dtype != q.dtype or not _broadcasts(mask, scores)):
        return None
    triangle = is_triangle(mask) and _covers(mask, scores)
    scale = factor * q_factor * k_factor
    found = _Found(last, q, turn.inputs[0], v, mask, scale, perm, [product, softmax])
    if triangle:
        found.mask, found.causal = None, True
    found.nan_rows = not cleaned and not triangle and not _is_finite(mask)
    return _without_repeats(found) if _fits(found) else None


def _fits(found: _Found) -> bool:
    """Tell whether queries, keys and values agree as the node wants: products broadcast more than it does."""
    q, k, v = (dims_of(value) for value in (found.q, found.k, found.v))
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) == 4:
        return False
    if found.keys_transposed == KEYS_LAST:
        k = [k[0], k[2], k[1], k[3]]
    shared = k[1] == q[1] or k[1] == 1  # the one head of keys and values serves all queries
    return q[0] == k[0] == v[0] and shared and k[1:3] == v[1:3] and q[3] == k[3] and q[1] != 0 and q[3] != 0


def _without_repeats(found: _Found) -> _Found:
    """Let several query heads read the keys and values that they share, instead of copies of them."""
    if found.keys_transposed != SWAP_LAST:
        return found
    k, v = unrepeated(found.k), unrepeated(found.v)
    if k is not None and v is not None and k[1] == v[1]:
        found.k, found.v = k[0], v[0]
    return found


def _broadcasts(mask: ir.Value, scores: ir.Value) -> bool:
    """Tell whether the mask's axes are 1 or those of the scores."""
    m, s = dims_of(mask), dims_of(scores)
    if m is None or s is None or len(m) > 4 or len(m) < 2:
        return False
    return all(a == 1 or a == b for a, b in zip(m, s[4 - len(m) :], strict=True)) and m[-1] == s[-1]


def _covers(mask: ir.Value | None, scores: ir.Value) -> bool:
    """Tell whether a mask has a row of its own for each query: one row for all of them is no triangle."""
    m, s = dims_of(mask), dims_of(scores)
    return m is not None and s is not None and m[-2] == s[-2]


def _joined(value: ir.Value, perm: list[int]) -> tuple[ir.Value, int] | None:
    """Return [batch, length, heads*depth] and heads where ``value`` is that, split and transposed by ``perm``."""
    if perm:
        turn = producer(value, "Transpose", alone=False)
        if turn is None or _edit.attribute(turn, "perm") != perm or turn.inputs[0] is None:
            return None
        value = turn.inputs[0]
    split = producer(value, "Reshape", alone=False)
    whole, parts = dims_of(split.inputs[0]) if split is not None else None, dims_of(value)
    if split is None or whole is None or parts is None or len(whole) != 3 or len(parts) != 4:
        return None
    heads, width = parts[2].constant, whole[2].constant
    fits = whole[:2] == parts[:2] and heads is not None and width is not None and parts[3] * heads == width
    return (split.inputs[0], heads) if fits and heads is not None and split.inputs[0] is not None else None


def _result(last: ir.Node) -> ir.Node | None:
    """Return the Reshape that joins the heads of the result again."""
    turn = _edit.only_consumer(last.outputs[0])
    if turn is None or not _edit.is_op(turn, "Transpose") or _edit.attribute(turn, "perm") != HEADS_SECOND:
        return None
    join = _edit.only_consumer(turn.outputs[0])
    before, after = dims_of(turn.outputs[0]), dims_of(join.outputs[0]) if join is not None else None
    if join is None or not _edit.is_op(join, "Reshape") or before is None or after is None or len(after) != 3:
        return None
    return join if before[:2] == after[:2] and before[2] * before[3] == after[2] else None


def _mark(node: ir.Node, found: _Found) -> None:
    """Note what the standard operator cannot say: a softmax of -inf alone is NaN, where it gives 0."""
    if found.nan_rows:
        node.metadata_props[NAN_ROWS] = "1"


def _replace(found: _Found) -> None:
    q, v = _joined(found.q, HEADS_SECOND), _joined(found.v, HEADS_SECOND)
    k = _joined(found.k, [] if found.keys_transposed == KEYS_LAST else HEADS_SECOND)
    join = _result(found.last)
    mask = [found.mask] if found.mask is not None else []
    origin = [*found.nodes, found.last]
    fixed = {"scale": found.scale, **({"is_causal": 1} if found.causal else {})}
    if q is not None and k is not None and v is not None and join is not None and k[1] == v[1] and not q[1] % k[1]:
        attributes = {"q_num_heads": q[1], "kv_num_heads": k[1], **fixed}
        _mark(_edit.replace_node(join, "Attention", [q[0], k[0], v[0], *mask], attributes, also=origin), found)
        return
    keys = found.k
    if found.keys_transposed == KEYS_LAST:
        turn = ir.Node(
            "", "Transpose", [keys], ir.convenience.convert_attributes({"perm": HEADS_SECOND}), num_outputs=1
        )
        _edit.insert_before(found.last, turn)
        keys = turn.outputs[0]
        keys.type = found.q.type
    _mark(_edit.replace_node(found.last, "Attention", [found.q, keys, found.v, *mask], fixed, also=origin), found)


def call(model: ir.Model) -> int:
    """Replace."""
    count = 0
    for node in _edit.nodes(model):
        if node.graph is None or not _edit.is_op(node, "Softmax") or node.outputs[0].dtype == ir.DataType.DOUBLE:
            continue
        found = _match(node)
        if found is not None:
            _replace(found)
            count += 1
    return count
