"""A model's main graph as the searches see it: order, ancestors, cuts, marked values, one node by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from opforge.engines import Array
from opforge.errors import OpforgeError, UnsupportedError
from opforge.onnx import infer_shapes

__all__ = ["Graph", "kind_of"]


def kind_of(node: onnx.NodeProto) -> str:
    """``domain::Name``, or the name alone in the default domain."""
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from ([attribute.g] if attribute.HasField("g") else attribute.graphs)


def _reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads, those that its subgraphs capture among them."""
    found = dict.fromkeys(name for name in node.input if name)
    for graph in _subgraphs(node):
        own = {item.name for item in (*graph.input, *graph.initializer)}
        for inner in graph.node:
            found |= dict.fromkeys(name for name in _reads(inner) if name not in own)
            own |= set(inner.output)
        found |= dict.fromkeys(item.name for item in graph.output if item.name not in own)
    return list(found)


class Graph:
    """The nodes of a model's main graph in their order.

    Attributes:
        model: the model; it is not changed.
        nodes: its nodes but for constants.
        reads: what each node reads.
        makers: value -> index of the node that makes it.
        outputs: names of the model's outputs.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        graph = model.graph
        self._initializers = {item.name: item for item in graph.initializer}
        self._constants = {n.output[0]: n for n in graph.node if n.op_type == "Constant" and not n.domain}
        self.nodes = [n for n in graph.node if n.op_type != "Constant" or n.domain]
        self.reads = [_reads(node) for node in self.nodes]
        self.makers = {name: k for k, node in enumerate(self.nodes) for name in node.output if name}
        self.outputs = [item.name for item in graph.output]
        self._infos = _infos(model)

    def label(self, index: int) -> str:
        """Name a node for people."""
        node = self.nodes[index]
        return node.name or f"{node.op_type} that makes {next((n for n in node.output if n), '?')}"

    def dynamic(self, index: int) -> list[str]:
        """Values that a node reads and that are no constants."""
        return [n for n in self.reads[index] if n not in self._initializers and n not in self._constants]

    def ancestors(self, values: Iterable[str], within: Sequence[int] | None = None) -> list[int]:
        """Return the nodes that make the values or what these are made of, in order."""
        allowed = None if within is None else set(within)
        found: set[int] = set()
        pending = list(values)
        while pending:
            index = self.makers.get(pending.pop())
            if index is None or index in found or (allowed is not None and index not in allowed):
                continue
            found.add(index)
            pending += self.reads[index]
        return sorted(found)

    def crossing(self, before: Sequence[int], after: Sequence[int]) -> list[str]:
        """Return the values that nodes ``before`` make and nodes ``after`` read."""
        read = {name for index in after for name in self.reads[index]}
        return [name for index in before for name in self.nodes[index].output if name in read]

    def marked(self, values: Iterable[str]) -> onnx.ModelProto:
        """Return a copy whose outputs are the model's and these values."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        for name in values:
            if name not in self.outputs and name in self.makers:
                copy.graph.output.append(self._infos.get(name) or onnx.ValueInfoProto(name=name))
        return copy

    def alone(self, index: int, values: Mapping[str, Any]) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """Return a model of one node, its constants in it, and its inputs out of ``values``.

        Raises:
            UnsupportedError: an input is no tensor.
        """
        node = self.nodes[index]
        feeds: dict[str, Array] = {}
        infos, tensors, makers = [], [], []
        for name in self.reads[index]:
            if name in self._initializers:
                tensors.append(self._initializers[name])
            elif name in self._constants:
                makers.append(self._constants[name])
            else:
                value = values.get(name)
                if not isinstance(value, np.ndarray):
                    raise UnsupportedError("an input is no tensor", where=self.label(index), got=name)
                feeds[name] = value
                code = helper.np_dtype_to_tensor_dtype(value.dtype)
                infos.append(helper.make_tensor_value_info(name, code, value.shape))
        outputs = [self._infos.get(name) or onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([*makers, node], "alone", infos, outputs, tensors)
        model = helper.make_model(graph, ir_version=self.model.ir_version)
        del model.opset_import[:]
        model.opset_import.extend(self.model.opset_import)
        model.functions.extend(self.model.functions)
        return model, feeds

    def with_branch(self, index: int, condition: bool) -> onnx.ModelProto:
        """Return a model in which an If is replaced by the nodes of one branch."""
        import onnx_ir as ir

        from opforge.passes import inline_constant_if

        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        (node,) = [n for n in copy.graph.node if n.output[:] == self.nodes[index].output[:]]
        name = f"{node.input[0]}_as_it_was"
        copy.graph.initializer.append(onnx.numpy_helper.from_array(np.array(condition), name))
        node.input[0] = name
        made = ir.from_proto(copy)
        inline_constant_if.call(made)
        return ir.to_proto(made)

    def is_local_call(self, index: int) -> bool:
        """Whether a node calls a function of the model that is no registered operator."""
        from opforge.schema import registry

        node = self.nodes[index]
        own = any(f.domain == node.domain and f.name == node.op_type for f in self.model.functions)
        return own and registry.find(node.domain, node.op_type) is None

    def inlined(self) -> onnx.ModelProto:
        """Return a model in which functions that are no registered operators are replaced by their nodes."""
        import onnx_ir as ir

        from opforge.passes import _well_formed, inline_functions

        made = _well_formed.from_proto(self.model)
        inline_functions.call(made)
        from opforge.onnx import complete_model

        return complete_model(ir.to_proto(made))


def _infos(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Declared types of values, without shapes: a marked output must not say more than what holds."""
    try:
        inferred = infer_shapes(model)
    except OpforgeError:
        inferred = model
    except Exception:  # onnx's own kinds: the engines will say what is wrong with the model
        inferred = model
    found = {}
    for item in (*inferred.graph.value_info, *inferred.graph.output):
        if item.type.tensor_type.elem_type:
            found[item.name] = helper.make_tensor_value_info(item.name, item.type.tensor_type.elem_type, None)
    return found
