"""Bodies of operators of ai.onnx.ml that are plain arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.bin.lowering.bodies._transforms import transformed
from opforge.bin.lowering.bodies._trees import class_labels, classifier, ensemble, regressor
from opforge.bin.lowering.bodies._writer import Body
from opforge.passes import _edit

__all__ = ["BODIES"]

DOMAIN = "ai.onnx.ml"
FLOAT = ir.DataType.FLOAT


def _floats(node: ir.Node, name: str) -> np.ndarray[Any, Any]:
    return np.asarray(_edit.attribute(node, name, []), np.float32)


def _array_feature_extractor(b: Body, node: ir.Node) -> list[str]:
    return [b.op("Gather", b.inputs[0], b.op("Reshape", b.inputs[1], b.integers(-1)), axis=-1)]


def _binarizer(b: Body, node: ir.Node) -> list[str]:
    x = b.inputs[0]
    above = b.op("Greater", x, b.number(float(_edit.attribute(node, "threshold", 0.0)), x))
    return [b.op("CastLike", above, x)]


def _scaler(b: Body, node: ir.Node) -> list[str]:
    x = b.cast(b.inputs[0], FLOAT)
    shifted = b.op("Sub", x, b.constant(_floats(node, "offset")))
    return [b.op("Mul", shifted, b.constant(_floats(node, "scale")))]


def _normalizer(b: Body, node: ir.Node) -> list[str]:
    x, kind = b.cast(b.inputs[0], FLOAT), str(_edit.attribute(node, "norm", "MAX"))
    reduction = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[kind]
    norm, zero = b.op(reduction, x, b.integers(-1), keepdims=1), b.constant(0.0, np.float32)
    return [b.op("Where", b.op("Equal", norm, zero), x, b.op("Div", x, norm))]


def _linear(b: Body, node: ir.Node, outputs: int) -> str:
    x = b.cast(b.inputs[0], FLOAT)
    scores = b.op("MatMul", x, b.constant(_floats(node, "coefficients").reshape(outputs, -1).T))
    intercepts = _floats(node, "intercepts")
    return b.op("Add", scores, b.constant(intercepts)) if intercepts.size else scores


def _linear_regressor(b: Body, node: ir.Node) -> list[str] | None:
    scores = transformed(b, _linear(b, node, int(_edit.attribute(node, "targets", 1))), node)
    return None if scores is None else [scores]


def _linear_classifier(b: Body, node: ir.Node) -> list[str] | None:
    labels = class_labels(node, "classlabels_ints")
    rows = max(len(_edit.attribute(node, "intercepts", [])), 1)
    if labels.size < 2 or rows != labels.size:
        return None  # one row of coefficients for two classes
    raw = _linear(b, node, rows)
    scores = transformed(b, raw, node)
    best = b.op("ArgMax", raw, axis=1, keepdims=0)
    return None if scores is None else [b.op("Gather", b.constant(labels), best), scores]


def _imputer(b: Body, node: ir.Node) -> list[str]:
    x, floats = b.inputs[0], _floats(node, "imputed_value_floats")
    if floats.size:
        missing, values = float(_edit.attribute(node, "replaced_value_float", 0.0)), b.constant(floats)
    else:
        missing = float(_edit.attribute(node, "replaced_value_int64", 0))
        values = b.constant(_edit.attribute(node, "imputed_value_int64s", []), np.int64)
    found = b.op("IsNaN", x) if np.isnan(missing) else b.op("Equal", x, b.number(missing, x))
    return [b.op("Where", found, b.op("CastLike", values, x), x)]


BODIES = {
    (DOMAIN, "ArrayFeatureExtractor"): _array_feature_extractor,
    (DOMAIN, "Binarizer"): _binarizer,
    (DOMAIN, "Imputer"): _imputer,
    (DOMAIN, "LinearClassifier"): _linear_classifier,
    (DOMAIN, "LinearRegressor"): _linear_regressor,
    (DOMAIN, "Normalizer"): _normalizer,
    (DOMAIN, "Scaler"): _scaler,
    (DOMAIN, "TreeEnsemble"): ensemble,
    (DOMAIN, "TreeEnsembleClassifier"): classifier,
    (DOMAIN, "TreeEnsembleRegressor"): regressor,
}
