"""Engines with a planted fault: the reference, in which one node computes something else."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opforge.engines import Availability, Traits
from opforge.engines.reference import engines as reference_engines
from opforge.onnx._read import read_model
from opforge.onnx._walk import nodes

(REFERENCE,) = reference_engines


def _after(kind, node):
    """Nodes that spoil an output, and the constants they need."""
    raw, out = f"{node.output[0]}_raw", node.output[0]

    def constant(name, value):
        tensor = numpy_helper.from_array(np.asarray(value, np.float32))
        return helper.make_node("Constant", [], [f"{out}_{name}"], value=tensor)

    if kind == "wrong":
        return [constant("c", 0.01), helper.make_node("Add", [raw, f"{out}_c"], [out])]
    if kind == "nan":  # the square root of what is negative
        return [
            constant("c", 100.0),
            helper.make_node("Add", [raw, f"{out}_c"], [f"{out}_s"]),
            helper.make_node("Sqrt", [raw], [f"{out}_n"]),
            helper.make_node("Mul", [f"{out}_n", f"{out}_n"], [out]),
        ]
    if kind == "shape":
        return [helper.make_node("Concat", [raw, raw], [out], axis=0)]
    if kind == "half":  # computed in float16
        return [
            helper.make_node("Cast", [raw], [f"{out}_h"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", [f"{out}_h"], [out], to=TensorProto.FLOAT),
        ]
    raise AssertionError(kind)


class Planted:
    """Loads a model with the fault in the node of a name; ``unless`` marked: only while that value is no output."""

    name = "planted"

    def __init__(self, kind, node, unless=None):
        self.kind, self.node, self.unless = kind, node, unless

    def availability(self):
        return Availability(True, "1")

    def traits(self):
        return Traits(("cpu",), ("float32",), True, ("reference",))

    def prepare(self):
        REFERENCE.prepare()

    def load(self, model, *, threads=None):
        proto = read_model(model)
        marked = {item.name for item in proto.graph.output}
        if self.unless not in marked:
            self._spoil(proto)
        path = model.with_name("planted.onnx")
        onnx.save(proto, path)
        return REFERENCE.load(path)

    def _spoil(self, proto):
        for holder in (proto.graph, *self._graphs(proto), *proto.functions):
            for index, node in enumerate(holder.node):
                if node.name == self.node:
                    added = _after(self.kind, node)
                    node.output[0] += "_raw"
                    rest = list(holder.node[index + 1 :])
                    del holder.node[index + 1 :]
                    holder.node.extend([*added, *rest])
                    return

    @staticmethod
    def _graphs(proto):
        for place in nodes(proto):
            for attribute in place.node.attribute:
                if attribute.HasField("g"):
                    yield attribute.g
