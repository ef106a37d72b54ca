"""Bodies of operators that look elements up in a list of keys: the encoders of ai.onnx.ml, n-grams of strings.

``Lookup`` of domain opforge gives the place of each element in constant keys, and their number for one that is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.bin.lowering.bodies._writer import Body
from opforge.passes import _edit

__all__ = ["BODIES", "texts"]

DOMAIN = "ai.onnx.ml"
FLOAT, INT64, STRING = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.STRING
HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

Array = np.ndarray[Any, Any]


def texts(listed: Sequence[str]) -> Array:
    """Return strings as the array that a constant is made of."""
    return np.array(list(listed), object).reshape(-1)


def _lookup(b: Body, x: str, keys: Array) -> str:
    return b.op("Lookup", x, b.constant(keys), domain="opforge")


def _tensor(tensor: ir.TensorProtocol) -> Array:
    return _edit.texts(tensor) if tensor.dtype is STRING else tensor.numpy()


def _table(node: ir.Node, kind: str) -> Array | None:
    for name, dtype in ((f"{kind}_int64s", np.int64), (f"{kind}_floats", np.float32)):
        listed = _edit.attribute(node, name)
        if listed is not None:
            return np.asarray(listed, dtype)
    strings, tensor = _edit.attribute(node, f"{kind}_strings"), node.attributes.get(f"{kind}_tensor")
    if strings is not None:
        return texts(strings)
    return None if tensor is None else _tensor(tensor.value).reshape(-1)


def _default(node: ir.Node, values: Array) -> Array:
    """What stands for an element that is no key, as an array of one element."""
    given = node.attributes.get("default_tensor")
    if given is not None:
        return _tensor(given.value).reshape(1).astype(values.dtype)
    if values.dtype == object:
        return texts([_edit.attribute(node, "default_string", "_Unused")])
    name, otherwise = ("default_int64", -1) if values.dtype.kind == "i" else ("default_float", -0.0)
    return np.asarray([_edit.attribute(node, name, otherwise)], values.dtype)


def _mapped(b: Body, keys: Array, values: Array, default: Array) -> list[str]:
    found = b.constant(np.concatenate([values, default]))
    return [b.op("Gather", found, _lookup(b, b.inputs[0], keys))]


def _label_encoder(b: Body, node: ir.Node) -> list[str] | None:
    classes = _edit.attribute(node, "classes_strings")
    if classes is not None:  # of the first version: both ways
        return _either_way(b, node, texts(classes), np.arange(len(classes)))
    keys, values = _table(node, "keys"), _table(node, "values")
    if keys is None or values is None or len(keys) != len(values):
        return None
    return _mapped(b, keys, values, _default(node, values))


def _category_mapper(b: Body, node: ir.Node) -> list[str] | None:
    strings = texts(_edit.attribute(node, "cats_strings", []))
    return _either_way(b, node, strings, np.asarray(_edit.attribute(node, "cats_int64s", []), np.int64))


def _either_way(b: Body, node: ir.Node, strings: Array, numbers: Array) -> list[str] | None:
    """From texts to numbers, or from numbers to texts: as the type of the input is."""
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype is STRING:
        return _mapped(b, strings, numbers, _default(node, numbers))
    return None if dtype is not INT64 else _mapped(b, numbers, strings, _default(node, strings))


def _one_hot_encoder(b: Body, node: ir.Node) -> list[str] | None:
    strings, numbers = _edit.attribute(node, "cats_strings", []), _edit.attribute(node, "cats_int64s", [])
    keys = texts(strings) if strings else np.asarray(numbers, np.int64)
    if not len(keys):
        return None
    place = _lookup(b, b.inputs[0] if strings else b.cast(b.inputs[0], INT64), keys)
    rows = np.eye(len(keys), dtype=np.float32)
    if _edit.attribute(node, "zeros", 1):  # else an element that is no key is an index out of range
        rows = np.concatenate([rows, np.zeros((1, len(keys)), np.float32)])
    return [b.op("Gather", b.constant(rows), place)]


def _feature_vectorizer(b: Body, node: ir.Node) -> list[str] | None:
    sizes = _edit.attribute(node, "inputdimensions", [])
    if len(sizes) != len(b.inputs):
        return None
    parts = []
    for name, size in zip(b.inputs, sizes, strict=True):
        rows = b.op("Shape", name, end=1)
        flat = b.op("Reshape", b.cast(name, FLOAT), b.op("Concat", rows, b.integers(-1), axis=0))
        # Cut or filled up with zeros to the size that is told.
        width = b.op("Shape", flat, start=1)
        pads = b.op("Concat", b.integers(0, 0, 0), b.op("Sub", b.integers(int(size)), width), axis=0)
        parts.append(b.op("Pad", flat, pads))
    return [b.op("Concat", *parts, axis=1)]


def _ngrams(b: Body, node: ir.Node) -> list[str] | None:
    pool = _edit.attribute(node, "pool_strings")
    if not pool:
        return None
    numbers = {text: k for k, text in enumerate(dict.fromkeys(pool))}
    kept = {name: _edit.attribute(node, name) for name in node.attributes if name != "pool_strings"}
    found = _lookup(b, b.inputs[0], texts(list(numbers)))
    return [b.op("TfIdfVectorizer", found, pool_int64s=[numbers[text] for text in pool], **kept)]


def _cast(b: Body, node: ir.Node) -> list[str] | None:
    """Texts become half types through f32."""
    to = ir.DataType(int(_edit.attribute(node, "to", 0)))
    if node.inputs[0] is None or node.inputs[0].dtype is not STRING or to not in HALVES:
        return None
    return [b.cast(b.cast(b.inputs[0], FLOAT), to)]


BODIES = {
    ("", "Cast"): _cast,
    ("", "TfIdfVectorizer"): _ngrams,
    (DOMAIN, "CategoryMapper"): _category_mapper,
    (DOMAIN, "FeatureVectorizer"): _feature_vectorizer,
    (DOMAIN, "LabelEncoder"): _label_encoder,
    (DOMAIN, "OneHotEncoder"): _one_hot_encoder,
}
