"""Numeric operators of ai.onnx.ml and of training, against onnx's reference or by their definition."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from opforge.errors import UnsupportedError
from tests.unit.kernels.one_node import check, run

RNG = np.random.default_rng(10)
ML = {"domain": "ai.onnx.ml"}
TYPES = (np.float32, np.float64, np.int32, np.int64)


def tensor(*values: float, dtype=np.float32):
    return numpy_helper.from_array(np.array(values, dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_arithmetic(dtype):
    x = (RNG.standard_normal((4, 3)) * 5).astype(dtype)
    x[1] = 0
    wide = x.astype(np.float32)
    check("Binarizer", [x], want=[(x > 1).astype(dtype)], threshold=1.0, **ML)
    scaled = (wide - np.float32([1, 2, 3])) * np.float32([2, 3, 4])
    check("Scaler", [x], [np.float32], want=[scaled], tolerance=1e-6, offset=[1.0, 2, 3], scale=[2.0, 3, 4], **ML)
    check("ArrayFeatureExtractor", [x, np.array([2, 0, 2])], want=[x[:, [2, 0, 2]]], **ML)
    for norm, function in (("L1", lambda v: np.abs(v).sum(1)), ("L2", lambda v: np.sqrt((v * v).sum(1)))):
        divisor = function(wide)[:, None]
        want = np.where(divisor == 0, wide, wide / np.where(divisor == 0, 1, divisor))
        check("Normalizer", [x], [np.float32], want=[want], tolerance=1e-6, norm=norm, **ML)


def test_imputer():
    x = np.array([[1, np.nan, 3], [np.nan, 2, np.nan]], np.float32)
    values = [10.0, 20.0, 30.0]
    want = np.where(np.isnan(x), np.float32(values), x)
    check("Imputer", [x], want=[want], imputed_value_floats=values, replaced_value_float=float("nan"), **ML)
    y = np.array([[1, -1]], np.int64)
    check("Imputer", [y], want=[np.array([[1, 7]])], imputed_value_int64s=[7], replaced_value_int64=-1, **ML)


def test_label_encoder():
    x = np.array([[3, 1, 9], [2, 3, -4]], np.int64)
    want = np.float32([[0.5, 0.25, -1], [4, 0.5, -1]])
    options = {"keys_int64s": [1, 2, 3], "values_floats": [0.25, 4, 0.5], "default_float": -1.0}
    check("LabelEncoder", [x], [np.float32], want=[want], **options, **ML)
    f = np.array([np.nan, 1.5, 2], np.float32)
    keys = {"keys_floats": [float("nan"), 1.5, 1.5], "values_int64s": [5, 6, 7]}
    check("LabelEncoder", [f], [np.int64], want=[np.array([5, 7, -1])], **keys, **ML)
    with pytest.raises(UnsupportedError, match="LabelEncoder"):
        run("LabelEncoder", [x], [np.int64], keys_int64s=[1], **ML)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear_models(transform):
    x, weights, shift = RNG.standard_normal((5, 4)), RNG.standard_normal((3, 4)), RNG.standard_normal(3)
    scores = x.astype(np.float32) @ weights.T.astype(np.float32) + shift.astype(np.float32)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    soft = powers / powers.sum(1, keepdims=True)
    result = {"NONE": scores, "LOGISTIC": 1 / (1 + np.exp(-scores))}.get(transform, soft)
    options = {"coefficients": weights.ravel().tolist(), "intercepts": shift.tolist(), "post_transform": transform}
    x = x.astype(np.float32)
    check("LinearRegressor", [x], [np.float32], want=[result], tolerance=1e-5, targets=3, **options, **ML)
    labels = np.array([10, 20, 30])
    want = [labels[scores.argmax(1)], result]
    outputs = (np.int64, np.float32)
    check("LinearClassifier", [x], outputs, want=want, tolerance=1e-5, classlabels_ints=[10, 20, 30], **options, **ML)


def tree(x: np.ndarray) -> np.ndarray:
    """x0 <= 0 ? (x1 > 1 ? leaf 2 : leaf 3) : leaf 4, as node numbers."""
    return np.where(x[:, 0] <= 0, np.where(x[:, 1] > 1, 2, 3), 4)


NODES = {
    "nodes_treeids": [0] * 5 + [1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0],
    "nodes_featureids": [0, 1, 0, 0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF", "LEAF"],
    "nodes_values": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 2, 0, 0, 0, 0],
    "nodes_falsenodeids": [4, 3, 0, 0, 0, 0],
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressor(dtype, how):
    x = (RNG.standard_normal((20, 2)) * 3).astype(dtype)
    table = {2: (1.0, np.nan), 3: (2.0, 5.0), 4: (np.nan, 7.0)}
    votes = np.array([[table[k], (0.5, 3.0)] for k in tree(x)])  # rows, trees, targets
    function = {"SUM": np.nansum, "AVERAGE": lambda v, axis: np.nansum(v, axis) / 2, "MIN": np.nanmin, "MAX": np.nanmax}
    want = (function[how](votes, axis=1) + np.array([10, 20])).astype(np.float32)
    weights = {
        "target_treeids": [0, 0, 0, 0, 1, 1],
        "target_nodeids": [2, 3, 3, 4, 0, 0],
        "target_ids": [0, 0, 1, 1, 0, 1],
        "target_weights": [1.0, 2.0, 5.0, 7.0, 0.5, 3.0],
        "base_values": [10.0, 20.0],
    }
    check(
        "TreeEnsembleRegressor",
        [x],
        [np.float32],
        want=[want],
        n_targets=2,
        aggregate_function=how,
        **NODES,
        **weights,
        **ML,
    )


def test_tree_classifier():
    x = (RNG.standard_normal((20, 2)) * 3).astype(np.float32)
    votes = {
        "class_treeids": [0, 0, 0],
        "class_nodeids": [2, 3, 4],
        "class_ids": [0, 1, 2],
        "class_weights": [1.0, 2, 3],
    }
    place = tree(x) - 2
    scores = np.zeros((20, 3), np.float32)
    scores[np.arange(20), place] = np.float32([1, 2, 3])[place]
    want = [np.array([7, 8, 9])[place], scores]
    options = {"classlabels_int64s": [7, 8, 9], **NODES, **votes, **ML}
    check("TreeEnsembleClassifier", [x], (np.int64, np.float32), want=want, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tree_ensemble_with_sets_and_nan(dtype):
    x = np.array([[1.0, np.nan], [2.0, 0.5], [4.0, 3.0], [9.0, 0.0]], dtype)
    options = {
        "n_targets": 2,
        "tree_roots": [0],
        "nodes_modes": helper.make_tensor("m", 2, [2], bytes([6, 1]), raw=True),
        "nodes_featureids": [0, 1],
        "nodes_splits": tensor(0, 1, dtype=dtype),
        "nodes_truenodeids": [1, 0],
        "nodes_trueleafs": [0, 1],
        "nodes_falsenodeids": [2, 1],
        "nodes_falseleafs": [1, 1],
        "nodes_missing_value_tracks_true": [0, 1],
        "leaf_targetids": [0, 1, 0],
        "leaf_weights": tensor(5, 6, 7, dtype=dtype),
        "membership_values": tensor(1, 2, 4, dtype=dtype),
    }
    want = np.array([[5, 0], [5, 0], [0, 6], [7, 0]], dtype)
    check("TreeEnsemble", [x], want=[want], **options, **ML)
