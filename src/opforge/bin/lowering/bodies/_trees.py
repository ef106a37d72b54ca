"""Tree ensembles as gathers: all trees of all rows go down one level at a time, as deep as the deepest tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.bin.lowering.bodies._transforms import transformed
from opforge.bin.lowering.bodies._writer import Body
from opforge.bin.lowering.bodies.encoders import texts
from opforge.errors import ArgumentError
from opforge.passes import _edit

__all__ = ["class_labels", "classifier", "ensemble", "regressor"]

Array = np.ndarray[Any, Any]
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
COMPARE = ("LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal")
MEMBER = 6


@dataclass
class _Forest:
    """Inner nodes first, then leaves, which lead to themselves."""

    roots: Array
    feature: Array
    split: Array
    mode: Array
    yes: Array
    no: Array
    nan_yes: Array
    members: Array
    weights: Array
    """[nodes, targets]; NaN where a leaf says nothing of a target."""

    def depth(self, node: ir.Node) -> int:
        """The longest way from a root to a leaf."""
        level, seen = np.unique(self.roots), 0
        while True:
            inner = level[self.yes[level] != level]
            if not inner.size:
                return seen
            seen += 1
            if seen > len(self.yes):
                raise ArgumentError("a tree has no end", where=f"node {node.name!r} ({node.op_type})")
            level = np.unique(np.concatenate([self.yes[inner], self.no[inner]]))


def _take(b: Body, table: Array, index: str) -> str:
    return b.op("Gather", b.constant(table), index)


def _leaves(b: Body, f: _Forest, node: ir.Node) -> str:
    """The leaf that each tree ends at: [rows, trees]."""
    x = b.inputs[0]
    rows = b.op("Shape", x, end=1)
    at = b.op("Expand", b.constant(f.roots[None], np.int64), b.op("Concat", rows, b.integers(len(f.roots)), axis=0))
    inner = f.yes != np.arange(len(f.yes))
    modes = np.unique(f.mode[inner])
    for _ in range(f.depth(node)):
        value = b.op("GatherElements", x, _take(b, f.feature, at), axis=1)
        split = b.op("CastLike", _take(b, f.split, at), value)
        go = ""
        for mode in modes:
            if mode == MEMBER:
                wide = b.op("Unsqueeze", value, b.integers(-1))
                same = b.op("Equal", wide, b.op("CastLike", _take(b, f.members, at), value))
                hits = b.op("ReduceMax", b.cast(same, ir.DataType.FLOAT), b.integers(-1), keepdims=0)
                this = b.cast(hits, ir.DataType.BOOL)
            elif mode < len(COMPARE):
                this = b.op(COMPARE[mode], value, split)
            else:
                this = b.op("Not", b.op("Equal", value, split))
            go = this if not go else b.op("Where", _take(b, f.mode == mode, at), this, go)
        if f.nan_yes.any():
            go = b.op("Or", go, b.op("And", b.op("IsNaN", value), _take(b, f.nan_yes, at)))
        at = b.op("Where", go, _take(b, f.yes, at), _take(b, f.no, at)) if go else at
    return at


def _scores(b: Body, f: _Forest, node: ir.Node, how: str, base: Array | None = None) -> str:
    """[rows, targets]: the weights of all trees' leaves brought together."""
    leaf = _leaves(b, f, node)
    lacking = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
    table = np.where(np.isnan(f.weights), lacking, f.weights)
    reduction = {"MIN": "ReduceMin", "MAX": "ReduceMax"}.get(how, "ReduceSum")
    result = b.op(reduction, _take(b, table, leaf), b.integers(1), keepdims=0)
    if how == "AVERAGE":
        result = b.op("Div", result, b.number(len(f.roots), result))
    if how in ("MIN", "MAX"):
        result = b.op("Where", b.op("Equal", result, b.number(lacking, result)), b.number(0.0, result), result)
    if base is not None and base.size:
        result = b.op("Add", result, b.constant(base.astype(table.dtype)))
    return result


def _listed(node: ir.Node, name: str, dtype: Any, size: int = 0) -> Array:  # noqa: ANN401
    """A list attribute, or the tensor attribute of the same meaning."""
    for key in (name, f"{name}_as_tensor"):
        found = node.attributes.get(key)
        if found is not None:
            data = found.value.numpy() if hasattr(found.value, "numpy") else found.value
            return np.asarray(data, None if key != name else dtype)
    return np.zeros(size, dtype)


def ensemble(b: Body, node: ir.Node) -> list[str] | None:
    """TreeEnsemble of opset 5."""
    split = node.attributes["nodes_splits"].value.numpy()
    weights = node.attributes["leaf_weights"].value.numpy().astype(split.dtype)
    inner, leaves = len(split), len(weights)
    mode = node.attributes["nodes_modes"].value.numpy().astype(np.int64)
    targets = int(_edit.attribute(node, "n_targets", 1))

    def next_of(side: str) -> Array:
        ids, leaf = _listed(node, f"nodes_{side}nodeids", np.int64), _listed(node, f"nodes_{side}leafs", np.int64)
        return np.concatenate([np.where(leaf != 0, ids + inner, ids), inner + np.arange(leaves)])

    sets: list[list[float]] = [[]]
    if "membership_values" in node.attributes:
        for value in node.attributes["membership_values"].value.numpy():
            sets[-1].append(float(value)) if value == value else sets.append([])
    members = np.full((inner + leaves, max(1, *map(len, sets))), np.nan, split.dtype)
    for place, values in zip(np.flatnonzero(mode == MEMBER), sets, strict=False):
        members[place, : len(values)] = values
    table = np.full((inner + leaves, targets), np.nan, split.dtype)
    table[inner + np.arange(leaves), _listed(node, "leaf_targetids", np.int64)] = weights
    pad = np.zeros(leaves, np.int64)
    forest = _Forest(
        roots=_listed(node, "tree_roots", np.int64),
        feature=np.concatenate([_listed(node, "nodes_featureids", np.int64), pad]),
        split=np.concatenate([split, pad.astype(split.dtype)]),
        mode=np.concatenate([mode, pad]),
        yes=next_of("true"),
        no=next_of("false"),
        nan_yes=np.concatenate([_listed(node, "nodes_missing_value_tracks_true", np.int64, inner), pad]) != 0,
        members=members,
        weights=table,
    )
    how = ("AVERAGE", "SUM", "MIN", "MAX")[int(_edit.attribute(node, "aggregate_function", 1))]
    result = transformed(b, _scores(b, forest, node, how), node)
    return None if result is None else [result]


def _by_id(node: ir.Node, prefix: str, targets: int) -> _Forest:
    """The forest of the older operators, whose nodes are named by tree and node."""
    trees, ids = _listed(node, "nodes_treeids", np.int64), _listed(node, "nodes_nodeids", np.int64)
    place = {pair: k for k, pair in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    modes = np.asarray([MODES.index(m) for m in _edit.attribute(node, "nodes_modes", [])], np.int64)
    own = np.arange(len(trees))

    def next_of(side: str) -> Array:
        to = _listed(node, f"nodes_{side}nodeids", np.int64).tolist()
        found = [place.get((t, n), -1) for t, n in zip(trees.tolist(), to, strict=True)]
        following = np.where(modes == MODES.index("LEAF"), own, np.asarray(found, np.int64))
        if (following < 0).any():
            raise ArgumentError("a branch leads to no node", where=f"node {node.name!r} ({node.op_type})")
        return following

    split = _listed(node, "nodes_values", np.float32)
    weights = np.full((len(trees), targets), np.nan, split.dtype)
    rows = zip(
        _listed(node, f"{prefix}_treeids", np.int64).tolist(),
        _listed(node, f"{prefix}_nodeids", np.int64).tolist(),
        _listed(node, f"{prefix}_ids", np.int64).tolist(),
        _listed(node, f"{prefix}_weights", np.float32).tolist(),
        strict=True,
    )
    for tree, name, target, weight in rows:
        before = weights[place[tree, name], target]
        weights[place[tree, name], target] = weight if np.isnan(before) else before + weight
    yes, no = next_of("true"), next_of("false")
    return _Forest(
        roots=np.setdiff1d(own, np.concatenate([yes[yes != own], no[no != own]])),
        feature=_listed(node, "nodes_featureids", np.int64),
        split=split,
        mode=modes,
        yes=yes,
        no=no,
        nan_yes=_listed(node, "nodes_missing_value_tracks_true", np.int64, len(trees)) != 0,
        members=np.zeros((len(trees), 1), split.dtype),
        weights=weights,
    )


def _wide(b: Body, dtype: Any) -> None:  # noqa: ANN401
    """Features in the type of the thresholds."""
    b.inputs[0] = b.cast(b.inputs[0], ir.DataType.from_numpy(np.dtype(dtype)))


def regressor(b: Body, node: ir.Node) -> list[str] | None:
    """TreeEnsembleRegressor."""
    forest = _by_id(node, "target", int(_edit.attribute(node, "n_targets", 1)))
    _wide(b, forest.split.dtype)
    how = str(_edit.attribute(node, "aggregate_function", "SUM"))
    scores = _scores(b, forest, node, how, _listed(node, "base_values", np.float32))
    result = transformed(b, scores, node)
    return None if result is None else [b.cast(result, ir.DataType.FLOAT)]


def class_labels(node: ir.Node, numbers: str) -> Array:
    """Return the labels of a classifier: texts, or the numbers of the attribute with this name."""
    strings = _edit.attribute(node, "classlabels_strings", [])
    return texts(strings) if strings else np.asarray(_edit.attribute(node, numbers, []), np.int64)


def classifier(b: Body, node: ir.Node) -> list[str] | None:
    """TreeEnsembleClassifier with a score for each label."""
    labels = class_labels(node, "classlabels_int64s")
    voted = set(_listed(node, "class_ids", np.int64).tolist())
    if len(labels) < 2 or (len(labels) == 2 and len(voted) == 1):
        return None  # the score of one class that stands for two
    forest = _by_id(node, "class", len(labels))
    _wide(b, forest.split.dtype)
    scores = _scores(b, forest, node, "SUM", _listed(node, "base_values", np.float32))
    best = b.op("Gather", b.constant(labels), b.op("ArgMax", scores, axis=1, keepdims=0))
    result = transformed(b, scores, node)
    return None if result is None else [best, b.cast(result, ir.DataType.FLOAT)]
