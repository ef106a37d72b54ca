"""Upgrade rules of the normalisations (see ``_opset_rules``)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._upgrade import Writer, constant, dims, refuse, take_attribute

__all__ = ["batch_norm_mode", "batch_norm_outputs", "batch_norm_spatial", "group_norm"]


def _read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def batch_norm_mode(node: ir.Node) -> None:
    """Before opset 7 ``is_test`` tells the mode; a model that asks for nothing but Y wants the test mode anyhow."""
    if take_attribute(node, "is_test", 0) and len(node.outputs) > 1:
        if any(_read(o) for o in node.outputs[1:]):
            raise refuse(node, "BatchNormalization in test mode has one output")
        node.resize_outputs(1)


def batch_norm_spatial(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 9 ``spatial=0`` has statistics for each element of a sample, which broadcast over the batch."""
    if take_attribute(node, "spatial", 1):
        return None
    if any(_read(o) for o in node.outputs[1:]):
        raise refuse(node, "BatchNormalization with spatial=0 in training mode has no equal in newer opsets")
    x, scale, bias, mean, variance = node.inputs[:5]
    assert x is not None
    dtype = x.dtype.numpy() if x.dtype is not None else np.dtype(np.float32)
    write = Writer(node)
    epsilon = constant(node, np.array(_edit.attribute(node, "epsilon", 1e-5), dtype), "epsilon")
    deviation = write.op("Sqrt", write.op("Add", variance, epsilon))
    normal = write.op("Div", write.op("Sub", x, mean), deviation)
    return write.replaced_by(write.op("Add", write.op("Mul", normal, scale), bias))


def batch_norm_outputs(node: ir.Node) -> None:
    """Before opset 14 the number of outputs tells the mode, afterwards ``training_mode``; saved statistics are gone."""
    if any(_read(o) for o in node.outputs[3:]):
        raise refuse(node, "saved_mean and saved_var of BatchNormalization have no equal in newer opsets")
    training = any(_read(o) for o in node.outputs[1:3])
    node.resize_outputs(min(len(node.outputs), 3) if training else 1)
    if training:
        node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)


def group_norm(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 21 scale and bias count groups, afterwards channels."""
    groups = int(_edit.attribute(node, "num_groups"))
    shape = dims(node)
    channels = shape[1].constant if shape is not None and len(shape) > 1 else None
    write = Writer(node)
    each: ir.Value | None = None
    for index in (1, 2):
        value = node.inputs[index]
        data = _edit.array(value)
        if data is not None and channels is not None:
            node.replace_input_with(index, constant(node, np.repeat(data, channels // groups), str(index)))
            continue
        if each is None:
            count = write.op("Shape", node.inputs[0], start=1, end=2)
            size = write.op("Div", count, constant(node, np.array([groups], np.int64), "groups"))
            each = write.op("Concat", constant(node, np.array([1], np.int64), "one"), size, axis=0)
        column = write.op("Reshape", value, constant(node, np.array([groups, 1], np.int64), "column"))
        wide = write.op("Expand", column, each)
        node.replace_input_with(index, write.op("Reshape", wide, constant(node, np.array([-1], np.int64), "row")))
    return write.nodes()
