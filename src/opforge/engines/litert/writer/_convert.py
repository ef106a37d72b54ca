"""An ONNX model to the bytes of a .tflite file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from opforge.engines.litert.writer._file import File
from opforge.engines.litert.writer._lower import lower
from opforge.errors import ArgumentError, MissingOperatorError
from opforge.onnx._read import read_model
from opforge.passes import (
    _contract,
    _edit,
    _well_formed,
    cancel_transposes,
    close_subgraphs,
    decompose_batch_norm,
    decompose_gemm,
    explicit_pads,
    fold_constants,
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
    remove_dead,
    remove_identities,
    share_subexpressions,
    static_reshapes,
    upgrade_opset,
)
from opforge.passes._operators import undefined
from opforge.schema import discover

if TYPE_CHECKING:
    import onnx

__all__ = ["convert"]

IMPORT = (freeze_inputs, close_subgraphs, lift_constants, upgrade_opset, lower_dropout, infer_shapes)
PASSES = (
    remove_identities,
    fold_constants,
    inline_constant_if,
    decompose_gemm,
    infer_shapes,
    fold_constants,
    share_subexpressions,
    infer_shapes,
    cancel_transposes,
    static_reshapes,
    infer_shapes,
    merge_reshapes,
    fuse_batch_norm,
    infer_shapes,
    decompose_batch_norm,
    infer_shapes,
    raise_hard_swish,
    raise_gelu,
    fold_constants,
    explicit_pads,
    remove_identities,
    share_subexpressions,
    remove_dead,
    infer_shapes,
)
"""Brings a model into the few forms that the table has rows for."""


def convert(model: str | Path | onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """Write a model; see ``opforge.litert.convert``."""
    where = "model" if not isinstance(model, str | Path) else str(model)
    proto = read_model(Path(model)) if isinstance(model, str | Path) else model
    discover()
    graph_model = _well_formed.from_proto(proto)
    for graph_input in [v for v in graph_model.graph.inputs if v.name not in graph_model.graph.initializers]:
        if not isinstance(graph_input.type, ir.TensorType):
            raise ArgumentError("LiteRT takes tensors only", where=f"{where}, input {graph_input.name}")
    inline_functions.call(graph_model)
    _require_operators(graph_model, where)
    if shapes:
        _fix(graph_model, shapes, where)
    for graph_pass in (*IMPORT, *PASSES):
        _contract.run(graph_model, _contract.as_pass(graph_pass))
    file = File("written by opforge")
    inputs, outputs = lower(file, graph_model)
    return file.finish(inputs, outputs)


def _require_operators(model: ir.Model, where: str) -> None:
    rows = [
        f"\n    node {found.node.name!r} ({found.operator})"
        + (f": did you mean {found.nearest}?" if found.nearest else "")
        for found in undefined(model)
    ]
    if rows:
        raise MissingOperatorError(
            "nodes have neither a registered operator nor a body",
            where=where,
            got="".join(rows),
            hint="load the package that declares them with opforge.load(...) or --package",
        )


def _fix(model: ir.Model, shapes: Mapping[str, Sequence[int]], where: str) -> None:
    """Give inputs their sizes, and dimensions of the same name in other inputs too."""
    inputs = {value.name: value for value in model.graph.inputs}
    named: dict[str, int] = {}
    for name, sizes in shapes.items():
        value = inputs.get(name)
        if value is None:
            raise ArgumentError("there is no such input", where=where, expected=", ".join(map(str, inputs)), got=name)
        given = list(value.shape) if value.shape is not None else [None] * len(sizes)
        fits = len(given) == len(sizes) and all(
            not isinstance(d, int) or d == s for d, s in zip(given, sizes, strict=True)
        )
        if not fits:
            text = [d if isinstance(d, int) else getattr(d, "value", None) for d in given]
            raise ArgumentError("wrong shape", where=f"{where}, input {name}", expected=text, got=list(sizes))
        for dim, size in zip(given, sizes, strict=True):
            symbol = getattr(dim, "value", None)
            if isinstance(symbol, str) and named.setdefault(symbol, size) != size:
                raise ArgumentError(
                    f"two sizes for the dimension {symbol}",
                    where=f"{where}, input {name}",
                    expected=named[symbol],
                    got=size,
                )
        value.shape = ir.Shape(sizes)
    for value in model.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape([d if isinstance(d, int) else named.get(d.value or "", d) for d in value.shape])
        value.meta.pop("dims", None)
    for graph in _edit.graphs(model):  # what was said for open sizes is inferred anew
        for node in graph:
            for out in node.outputs:
                out.shape = None
                out.meta.pop("dims", None)
