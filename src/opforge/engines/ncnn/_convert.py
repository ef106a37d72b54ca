"""From an ONNX model to a network of ncnn: our graph passes, then one rule per operator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import onnx_ir as ir

from opforge.engines._nodes import check_nodes
from opforge.engines.ncnn import _along, _axes, _elementwise, _matrix, _windows
from opforge.engines.ncnn._builder import MOST_AXES, Blob, Builder, NeedsOne, Refused, shown
from opforge.engines.ncnn._custom import layer_kind
from opforge.engines.ncnn._finish import finish
from opforge.engines.ncnn._net import Layer
from opforge.engines.ncnn._ours import add_custom, form_of
from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.onnx._read import read_model
from opforge.passes import (
    _contract,
    _edit,
    _well_formed,
    cancel_transposes,
    close_subgraphs,
    explicit_pads,
    fold_constants,
    fold_scale_shift,
    freeze_inputs,
    fuse_batch_norm,
    infer_shapes,
    inline_constant_if,
    inline_functions,
    lift_constants,
    lower_dropout,
    merge_reshapes,
    raise_gelu,
    raise_hard_swish,
    raise_layer_norm,
    raise_swish,
    remove_dead,
    remove_identities,
    share_subexpressions,
    static_reshapes,
    upgrade_opset,
)
from opforge.passes._operators import operator_of
from opforge.schema import Operator, registry

if TYPE_CHECKING:
    import onnx

__all__ = ["RULES", "Network", "Port", "convert"]

RULES: Final[Mapping[str, Callable[[Builder, ir.Node], None]]] = {
    **_elementwise.RULES,
    **_windows.RULES,
    **_matrix.RULES,
    **_axes.RULES,
    **_along.RULES,
}
"""Standard operator -> what adds its layers, or raises Refused."""

IMPORT: Final = (freeze_inputs, close_subgraphs, lift_constants, upgrade_opset, lower_dropout)
PASSES: Final = (
    remove_identities,
    fold_constants,
    inline_constant_if,
    share_subexpressions,
    infer_shapes,
    fold_constants,
    cancel_transposes,
    static_reshapes,
    merge_reshapes,
    fuse_batch_norm,
    raise_hard_swish,
    raise_layer_norm,
    raise_gelu,
    infer_shapes,
    fold_scale_shift,
    raise_hard_swish,
    raise_swish,
    fold_constants,
    remove_identities,
    cancel_transposes,
    share_subexpressions,
    remove_dead,
    infer_shapes,
    explicit_pads,
)
"""Brings a model into the few forms that the table has rows for."""

_INTEGERS: Final = (ir.DataType.INT32, ir.DataType.INT64)
_WITH_INTEGERS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"), (0,)),
    "Gather": (1,),
}
"""Operators that may have integers from outside, and the inputs that may be them."""
_MOST_ROUNDS: Final = 16


@dataclass(frozen=True)
class Port:
    """An input or output of the model, and its blob.

    ``form`` is that of the parameters of our layers: how the tensor of the model becomes the blob. ``dtype`` is that
    of the model (NumPy's name); a blob holds float32, or int32 where the model has integers.
    """

    name: str
    blob: str
    dtype: str
    shape: tuple[int | str | None, ...]
    form: int


@dataclass
class Network:
    """What is written: layers, inputs, outputs, the operators of ours by layer kind, and what was decided."""

    layers: list[Layer]
    inputs: list[Port]
    outputs: list[Port]
    operators: dict[str, Operator] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def convert(model: str | os.PathLike[str] | onnx.ModelProto, *, sizes: Mapping[str, int] | None = None) -> Network:
    """Convert a model.

    Args:
        model: the model, or its file.
        sizes: numbers for named dimensions; a dimension that has to be 1, since ncnn has no batch, becomes so by
            itself and is named in the notes.

    Raises:
        UnsupportedError: nodes that ncnn has no layer for; all are listed with the reasons.
        MissingOperatorError: the same, and some are custom nodes that nothing defines.
        ArgumentError: the model contradicts itself, or custom nodes their declarations.
    """
    import onnx

    where = "model" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    proto = model if isinstance(model, onnx.ModelProto) else read_model(Path(where))
    chosen, notes = dict(sizes or {}), []
    _require_names(proto, chosen, where)
    check_nodes(proto, where)  # what is only missing is listed with the nodes that have no layer
    for _ in range(_MOST_ROUNDS):
        try:
            network = _Conversion(_prepared(proto, chosen), where).run()
        except NeedsOne as need:
            chosen[need.name] = 1
            notes.append(f"{need.name} is 1: ncnn has no batch, and {need.why} needs one")
            continue
        network.notes[:0] = notes
        return network
    raise UnsupportedError("too many open first axes", where=where, got=sorted(chosen), hint="give sizes")


def _require_names(model: onnx.ModelProto, sizes: Mapping[str, int], where: str) -> None:
    known = {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
    unknown = sorted(set(sizes) - known)
    if unknown:
        raise ArgumentError("no such dimension", where=where, expected=sorted(known) or "none has a name", got=unknown)


def _prepared(proto: onnx.ModelProto, sizes: Mapping[str, int]) -> ir.Model:
    """Read, name what has no name, set sizes, and run the passes."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    for value in copy.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                name = dim.dim_param or f"{value.name}_{axis}"
                dim.dim_param = name
                if name in sizes:
                    dim.dim_value = sizes[name]
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    if sizes:  # what is said of values inside is of other sizes
        del copy.graph.value_info[:]
    model = _well_formed.from_proto(copy)
    inline_functions.call(model)
    for graph_pass in (*IMPORT, *PASSES):
        if graph_pass is fold_constants:
            _fill(model)
        _contract.run(model, _contract.as_pass(graph_pass))
    return model


def _fill(model: ir.Model) -> None:
    """Write out tensors that are one number again and again: folding leaves large ones, and here they are weights."""
    for node in _edit.nodes(model):
        shape = _edit.array(node.inputs[0]) if _edit.is_op(node, "ConstantOfShape") else None
        if shape is None or node.graph is None:
            continue
        value = _edit.attribute(node, "value")
        number = np.zeros(1, np.float32) if value is None else value.numpy().reshape(-1)
        full = np.full([int(d) for d in shape], number[0], number.dtype)
        _edit.replace_value(node.outputs[0], _edit.add_constant(model.graph, full, f"{node.outputs[0].name}__full"))
        _edit.drop_if_unused(node)


class _Conversion:
    """One walk over a prepared model."""

    def __init__(self, model: ir.Model, where: str) -> None:
        self._model = model
        self._where = where
        self._b = Builder()
        self._operators: dict[str, Operator] = {}
        self._refused: list[str] = []
        self._missing = False
        self._tainted: set[ir.Value] = set()

    def run(self) -> Network:
        """Convert inputs, nodes, outputs."""
        graph = self._model.graph
        inputs = [port for value in graph.inputs if (port := self._input(value)) is not None]
        for node in graph:
            if node not in self._b.done:
                self._node(node)
        if self._refused:
            kind = MissingOperatorError if self._missing else UnsupportedError
            one = len(self._refused) == 1
            rows = self._refused[0] if one else "".join(f"\n    {row}" for row in self._refused)
            raise kind(
                "ncnn cannot run nodes of this model",
                where=self._where,
                expected="operators of docs/ncnn.md, and registered operators in float32 and int32",
                got=rows,
                hint="load the package of custom operators, simplify the model, or give sizes of open dimensions",
            )
        taken = {port.blob for port in inputs}
        outputs = [self._output(value, taken) for value in graph.outputs]
        layers = finish(self._b, [port.blob for port in outputs])
        return Network(layers, inputs, outputs, self._operators)

    def _input(self, value: ir.Value) -> Port | None:
        name = value.name or "input"
        if not isinstance(value.type, ir.TensorType) or value.shape is None:
            self._refuse(f"input {name}", "no tensor with a known number of axes")
            self._tainted.add(value)
            return None
        if value.dtype not in (ir.DataType.FLOAT, *_INTEGERS):
            self._refuse(f"input {name}", f"{value.dtype}: ncnn's tensors hold float32 or int32")
        dims = self._b.dims(value)
        lead = int(len(dims) > 2 and dims[0].constant == 1)
        if len(dims) - lead > MOST_AXES:
            if dims[0].constant is None:
                self._b.require_one(dims, f"an input of {len(dims)} axes")
            self._refuse(f"input {name}", f"{shown(dims)} has {len(dims)} axes; ncnn has {MOST_AXES}")
            dims = dims[:MOST_AXES]
        blob = Blob(self._b.name(name), tuple(dims), lead, integer=value.dtype in _INTEGERS)
        sizes = [d.constant for d in blob.sizes]
        hints = dict(zip({1: (0,), 2: (1, 0), 3: (2, 1, 0), 4: (2, 11, 1, 0)}[len(sizes)], sizes, strict=True))
        params = {number: size for number, size in hints.items() if size} if None not in sizes else {}
        self._b.add_many("Input", [], [blob], params)
        self._b.give(value, blob)
        return _port(value, blob)

    def _output(self, value: ir.Value, taken: set[str]) -> Port:
        """Give an output a blob of its own: an input's, or another output's, is copied."""
        blob = self._b.blob(value)
        if blob.name in taken:
            copy = replace(blob, name=self._b.name(value.name or "copy"))
            self._b.add_many("Noop", [blob], [copy])
            blob = copy
        taken.add(blob.name)
        return _port(value, blob)

    def _refuse(self, place: str, reason: str) -> None:
        self._refused.append(f"{place}: {reason}")

    def _node(self, node: ir.Node) -> None:
        custom = node.domain not in ("", "ai.onnx")
        kind = f"{node.domain}::{node.op_type}" if custom else node.op_type
        place = f"{kind} ({node.name or node.outputs[0].name})"
        tainted = any(v in self._tainted for v in node.inputs if v is not None)
        operator = operator_of(node) if custom else None
        try:
            if custom and operator is None:
                self._missing = True
                raise Refused(self._undefined(node))
            if operator is None and node.op_type not in RULES:
                raise Refused("ncnn has no layer for it")
            if tainted:
                raise _Behind
            if operator is not None:
                kind = layer_kind(operator.key)
                known = self._operators.setdefault(kind, operator)
                if known is not operator:
                    raise Refused(f"ncnn would know it by the name of {known.key}")
                add_custom(self._b, node, operator, kind)
                return
            self._require_floats(node)
            RULES[node.op_type](self._b, node)
            for output in node.outputs:
                read = output.is_graph_output() or any(use.node not in self._b.done for use in output.uses())
                if read and not self._b.has(output):
                    raise Refused(f"its output {output.name}")
        except _Behind:
            self._taint(node)
        except Refused as refused:
            self._refuse(place, refused.reason)
            self._taint(node)

    def _undefined(self, node: ir.Node) -> str:
        """Say why no registered operator is meant by a node."""
        versions = registry.versions(node.domain, node.op_type)
        if versions:
            imported = node.version or self._model.opset_imports.get(node.domain)
            return f"the model imports version {imported}, registered is it since {min(versions)}"
        kind = f"{node.domain}::{node.op_type}"
        near = registry.nearest(kind, registry.operators(all_versions=True))
        return "nothing defines it" + (f"; did you mean {near}?" if near else "")

    def _taint(self, node: ir.Node) -> None:
        """What depends on a refused node is looked at no further than for whether there is a layer."""
        self._tainted.update(node.outputs)

    def _require_floats(self, node: ir.Node) -> None:
        may = _WITH_INTEGERS.get(node.op_type, ())
        for index, value in enumerate(node.inputs):
            if value is None or _edit.array(value) is not None or value.dtype == ir.DataType.FLOAT:
                continue
            if index not in may or value.dtype not in _INTEGERS:
                raise Refused(f"{value.name} is {value.dtype}: ncnn's layers compute in float32")


class _Behind(Exception):
    """The node depends on one that was refused."""


def _port(value: ir.Value, blob: Blob) -> Port:
    dims = tuple(d.constant if d.constant is not None else None if d.is_anonymous else str(d) for d in blob.dims)
    dtype = value.dtype.numpy() if value.dtype is not None else "float32"
    return Port(value.name or blob.name, blob.name, str(dtype), dims, form_of(blob))
