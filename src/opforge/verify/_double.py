"""A model in float64: every floating-point type becomes double, so that ONNX's evaluator gives what is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opforge.engines.reference._engine import make_evaluator

__all__ = ["double_evaluator", "doubled", "widened"]

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPES_IN_ATTRIBUTES = {"Cast": "to", "EyeLike": "dtype", "SequenceEmpty": "dtype", "DequantizeLinear": "output_dtype"}
"""Operators that name an element type, and the attribute's name."""


def widened(value: Any) -> Any:  # noqa: ANN401 - an array, a list of them or None
    """Return a value with floating-point arrays as float64."""
    if isinstance(value, list):
        return [widened(item) for item in value]
    if isinstance(value, np.ndarray) and (value.dtype.kind == "f" or value.dtype.name == "bfloat16"):
        return value.astype(np.float64)
    return value


def doubled(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that computes in float64."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _graph(copy.graph)
    for function in copy.functions:
        for node in function.node:
            _node(node)
    return copy


def _graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _tensor(tensor)
    for info in (*graph.input, *graph.output, *graph.value_info):
        _type(info.type)
    for node in graph.node:
        _node(node)


def _type(type_: onnx.TypeProto) -> None:
    if type_.HasField("tensor_type") and type_.tensor_type.elem_type in _FLOATS:
        type_.tensor_type.elem_type = TensorProto.DOUBLE
    elif type_.HasField("sequence_type"):
        _type(type_.sequence_type.elem_type)
    elif type_.HasField("optional_type"):
        _type(type_.optional_type.elem_type)


def _tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), name))


def _node(node: onnx.NodeProto) -> None:
    typed = "" if node.domain else _TYPES_IN_ATTRIBUTES.get(node.op_type, "")
    constant = node.op_type == "Constant" and not node.domain
    made = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            _graph(attribute.g)
        for graph in attribute.graphs:
            _graph(graph)
        if attribute.HasField("t"):
            _tensor(attribute.t)
        if typed and attribute.name == typed and attribute.i in _FLOATS:
            attribute.i = TensorProto.DOUBLE
        if constant and attribute.name in ("value_float", "value_floats"):
            number = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            made.append(helper.make_attribute("value", numpy_helper.from_array(np.array(number, np.float64))))
    if made:
        del node.attribute[:]
        node.attribute.extend(made)


def double_evaluator(model: onnx.ModelProto) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return what runs a model in float64: by ONNX's evaluator, and operators of ours by their references.

    Raises:
        OpforgeError: the evaluator does not know an operator.
    """
    wide = doubled(model)
    names = [item.name for item in wide.graph.output]
    evaluator = make_evaluator(wide, "float64", wide=True)

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        with np.errstate(all="ignore"):
            results = evaluator.run(None, {name: widened(value) for name, value in inputs.items()})
        # NumPy's functions give scalars for arrays without dimensions.
        results = [np.asarray(value) if isinstance(value, np.generic) else value for value in results]
        return dict(zip(names, results, strict=True))

    return run
