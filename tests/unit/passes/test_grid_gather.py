"""GatherND by a grid of indices."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.unit.compiler.graphs import model, node, ops, same

CONSTANTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "back": np.array([1, 2, 3]),
    "front": np.array([0, 1, 2]),
    "last": np.array([-1]),
    "only": np.array([0]),
}


def _nodes(step="one", start="zero", order="bi ki"):
    nodes = []
    for axis, name in enumerate("bk"):
        nodes += [node("Shape", "m", f"{name}n", start=axis, end=axis + 1), node("Squeeze", f"{name}n", f"{name}s")]
        nodes += [node("Range", f"{start} {name}s {step}", f"{name}r")]
        nodes += [node("Unsqueeze", f"{name}r {'back' if name == 'b' else 'front'}", f"{name}u")]
    nodes += [node("Add", "bu ku", "grid"), node("Shape", "grid", "gs")]
    for name in "bk":
        nodes += [node("Expand", f"{name}u gs", f"{name}e"), node("Unsqueeze", f"{name}e last", f"{name}i")]
    return [*nodes, node("Concat", order, "i", axis=-1), node("GatherND", "m i", "y")]


def _run(nodes, mask):
    kinds = {"m": (TensorProto.BOOL, ["B", "K"])}
    return ops(same(model(nodes, kinds, CONSTANTS, output_dtype=TensorProto.BOOL), {"m": mask})[0])


def test_grid_of_all_indices_is_a_view():
    mask = np.random.default_rng(0).random((3, 5)) > 0.5
    assert _run(_nodes(), mask) == ["Unsqueeze"]


@pytest.mark.parametrize("change", [{"order": "ki bi"}, {"start": "one"}])
def test_other_indices_stay(change):
    mask = np.random.default_rng(0).random((4, 4)) > 0.5
    nodes = _nodes(**change)
    if change.get("start"):  # 1, 2, 3: one row and column less
        mask = mask[:, :]
    assert "GatherND" in _run(nodes, mask)
