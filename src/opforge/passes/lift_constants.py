"""Constant nodes become initializers, so that every later pass meets one form of constant."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "lift_constants"
REQUIRES: tuple[str, ...] = ()
ENSURES: tuple[str, ...] = ("constants",)

_DTYPES = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}


def _data(node: ir.Node) -> ir.TensorProtocol | None:
    for name, attr in node.attributes.items():
        if name == "value":
            return attr.as_tensor()
        if name in _DTYPES:
            return ir.tensor(np.asarray(attr.value, _DTYPES[name]))
        if name in ("value_string", "value_strings"):
            texts = attr.value if name.endswith("s") else [attr.value]
            data = np.array([str(t).encode() for t in texts], dtype=object)
            return ir.StringTensor(data, shape=ir.Shape([len(texts)] if name.endswith("s") else []))
    return None


def call(model: ir.Model) -> int:
    """Lift the constants of every graph into that graph's initializers."""
    count = 0
    for graph in _edit.graphs(model):
        for node in list(graph):
            if not _edit.is_op(node, "Constant") or (data := _data(node)) is None:
                continue
            old = node.outputs[0]
            value = ir.Value(name=old.name, shape=ir.Shape(list(data.shape.numpy())), type=ir.TensorType(data.dtype))
            value.const_value = data
            if old.is_graph_output():
                value.name = f"{old.name}__constant"
            else:
                old.name = f"{old.name}__lifted"
            graph.register_initializer(value)
            _edit.replace_value(old, value)
            graph.remove(node, safe=True)
            count += 1
    return count
