"""Whether one expression may stand for another: in float32 it is nowhere less accurate, to a few roundings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opforge.expr import Node, ValueType, semantics
from opforge.expr.nodes import LEAVES, postorder
from opforge.expr.reference import evaluate
from opforge.expr.simplify import simplify

__all__ = ["is_no_worse"]

POINTS, NEIGHBOURS = 256, 8
ULPS = 16.0
"""Units in the last place that equal meanings may differ by: each operation of a formula rounds once."""
FACTOR = 4.0
"""By how much the error may exceed that of what is replaced, at a point where both have more."""

Array = Any


def is_no_worse(new: Node, old: Node, inputs: Sequence[ValueType]) -> bool:
    """Compare errors against the old expression in float64, at points of all magnitudes and near cancellation.

    Args:
        new: what is to stand for ``old``; neither holds attributes.
        old: what a model computes.
        inputs: types of the inputs of both.
    """
    (stable,) = simplify([old])  # float64 loses digits too, where the model's form cancels
    with np.errstate(all="ignore"):
        points = _points(inputs)
        (exact,) = evaluate([(stable, None)], points)
        before, after = _rounded(old, points), _rounded(new, points)
        if exact.dtype.kind != "f":
            return bool(np.array_equal(before, after))
        kept = ~np.isfinite(before) | np.isfinite(after)  # what was finite stays so
        special = np.isinf(exact) & np.isinf(before)
        kept &= ~special | (after == before)
        usual = np.isfinite(exact) & np.isfinite(before)
        unit = np.maximum(np.abs(exact) * 2.0**-23, 2.0**-149)
        # An error may be 0 by luck: neighbours share the largest one.
        error = np.where(usual, np.abs(before - exact), 0.0).reshape(-1, NEIGHBOURS).max(1).repeat(NEIGHBOURS)
        return bool(kept.all() and (np.abs(after - exact) <= FACTOR * error + ULPS * unit)[usual].all())


def _points(types: Sequence[ValueType]) -> list[Array]:
    """Draw values of all magnitudes, later inputs also near the first one and its opposite, in rows of neighbours."""
    rng = np.random.default_rng(2026)
    columns: list[Array] = []
    for _ in types:
        data = rng.standard_normal(POINTS) * 10.0 ** rng.choice([-3, -1, 0, 0, 0, 1, 4], POINTS)
        data[:9] = rng.permutation([0.0, -0.0, 1.0, -1.0, 1e8, -1e8, np.inf, -np.inf, np.nan])
        if columns:
            near = columns[0] * rng.choice([-1, 1], POINTS) * (1 + 1e-6 * data)
            data[POINTS // 2 :] = near[POINTS // 2 :]
        columns.append(data)
    steps = 1 + np.arange(NEIGHBOURS) * 2.0**-22
    rows = [(data[:, None] * steps).reshape(-1).astype(np.float32) for data in columns]
    return [semantics.cast(row, type_) for row, type_ in zip(rows, types, strict=True)]


def _rounded(root: Node, inputs: Sequence[Array]) -> Array:
    """Evaluate with a rounding to float32 after each operation."""
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    values: dict[int, Array] = {}
    for node in postorder([root]):
        if node.op in LEAVES:
            value = inputs[node.index] if node.op == "input" else np.float64(node.value)
            value = semantics.cast(value, node.type)
        else:
            value = semantics.evaluate(node.op, [values[id(a)] for a in node.args], node.type)
        values[id(node)] = _round(value) if node.type.is_float else value
    return np.broadcast_to(values[id(root)], shape)


def _round(value: Array) -> Array:
    return np.asarray(value, np.float32).astype(np.float64)
