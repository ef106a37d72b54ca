"""``opforge.compile``: an ONNX model to one .bin."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from opforge.bin import format as bin_format
from opforge.bin import tuning
from opforge.bin.encode import STRING
from opforge.bin.format import PlanEntry
from opforge.bin.lowering import (
    attention,
    convolution,
    emit,
    fuse,
    layout,
    load,
    nhwc,
    pipeline,
    places,
    quantised,
    resolve,
    select,
    sound,
    support,
    weights,
)
from opforge.bin.lowering.graph import Graph
from opforge.bin.lowering.report import CompileReport, describe
from opforge.bin.program import Program
from opforge.bin.session import Session
from opforge.errors import OpforgeError, UnsupportedError
from opforge.passes import _edit, close_subgraphs

if TYPE_CHECKING:
    ModelLike = str | os.PathLike[str] | onnx.ModelProto

__all__ = ["CompileReport", "compile", "compile_program"]

TARGETS = ("cpu",)


def compile(
    model_or_path: ModelLike,
    out_path: str | os.PathLike[str],
    *,
    target: str = "cpu",
    precision: str = "model",
    tune: bool | Mapping[str, Sequence[int]] = False,
    operators: str | None = None,
) -> CompileReport:
    """Compile an ONNX model to a .bin.

    Args:
        model_or_path: a model, or the path of one (external data is found beside it).
        out_path: the file to write; a file there is replaced in one step.
        target: what the file is compiled for; "cpu" is one packing that every instruction set reads in place.
        precision: "model" keeps the model's dtypes. "f16" and "bf16" store the weights of matrix products,
            convolutions and recurrent cells in these types and still compute in f32, but that "bf16" also rounds
            what is multiplied by a constant matrix to bf16, which some processors multiply faster; results then
            differ a little between machines. The report says how far the weights moved. Inputs and outputs keep
            their types.
        tune: measure alternatives for convolutions on this machine (tiles, strips, Winograd or direct) and store the
            faster ones as attributes of their nodes; the file still runs everywhere. A mapping gives the shapes of
            inputs to measure with; True takes 1 for an open first dimension and 64 for other open ones.
        operators: "registry" or "body" decides for custom nodes that have both a registered operator and a body in
            the model that disagree; None makes that an error.

    Returns:
        What was fused, chosen and converted.

    Raises:
        MissingOperatorError: custom nodes that nothing defines; all are listed.
        UnsupportedError: standard nodes, a target or a precision that nothing here serves; all nodes are listed.
        ArgumentError: the model contradicts itself, or a body disagrees with the registered operator.
    """
    program, report = compile_program(model_or_path, target=target, precision=precision, tune=tune, operators=operators)
    report.output = os.fspath(out_path)
    report.bytes = bin_format.write(program, out_path, plan=_static_plan(program))
    return report


def _static_plan(program: Program) -> tuple[int, list[PlanEntry]] | None:
    """Let the runtime plan a program whose input shapes are all known, so that loading need not.

    Programs with symbolic dimensions are planned at the first sight of a shape; those that need a kernel library are
    planned where the library is. Large weights are zeros in the draft: where memory lies does not depend on them, and
    a session that finds a plan which does not fit makes its own.
    """
    inputs = [program.values[index] for index in program.graphs[0].inputs]
    shapes = {v.name: [d for d in v.shape or [] if isinstance(d, int)] for v in inputs}
    static = all(v.shape is not None and len(shapes[v.name]) == len(v.shape) for v in inputs)
    tensors = all(value.kind == "tensor" and value.dtype != STRING for value in program.values)
    if not static or not tensors or program.required or len(program.graphs) > 1:
        return None
    with tempfile.TemporaryDirectory(prefix="opforge-plan-") as folder:
        draft = Path(folder) / "draft.bin"
        bin_format.write(program, draft, weights=False)
        try:
            session = Session(draft)
            session.prepare(shapes)
        except OpforgeError as error:  # of the model: a caller knows nothing of the draft
            where = (error.where or "").removeprefix(str(draft)).lstrip(", ")
            raise type(error)(
                error.what, where=where or None, expected=error.expected, got=error.got, hint=error.hint
            ) from None
        return session.plan if session.statistics["plans"] and session.plan[1] else None


def compile_program(
    model_or_path: ModelLike,
    *,
    target: str = "cpu",
    precision: str = "model",
    tune: bool | Mapping[str, Sequence[int]] = False,
    operators: str | None = None,
    check: bool = False,
    require_kernels: bool = True,
) -> tuple[Program, CompileReport]:
    """Compile without writing (see `compile`).

    Args:
        model_or_path: see `compile`.
        target: see `compile`.
        precision: see `compile`.
        tune: see `compile`.
        operators: see `compile`.
        check: test what each graph pass requires and promises.
        require_kernels: refuse nodes that the runtime has no kernel for.
    """
    _choice("target", target, TARGETS)
    _choice("precision", precision, weights.PRECISIONS)
    model, digest = load.load(model_or_path)
    report = CompileReport(target=target, opset=model.opset_imports.get("", 0), source_nodes=len(_edit.nodes(model)))
    names, known = places.names_of(model), places.places_of(model)
    report.warnings += _defaults(model)
    close_subgraphs.call(model)
    report.warnings += resolve.resolve(model, operators)
    report.passes, report.conversions = pipeline.prepare(model, check=check, formulas=operators != "body")
    choices: convolution.Choices = {}
    if tune is not False:
        choices, report.tuned, warnings = tuning.try_tune(
            partial(lower, model, precision=precision), emit.emit, {} if tune is True else tune
        )
        report.warnings += warnings
    graph = lower(model, choices, precision)
    report.conversions += weights.narrow_weights(graph, precision)
    if require_kernels:
        support.require_kernels(graph)
    program = emit.emit(graph)
    sound.require_order(program)
    program.places = known
    places.keep_names(program, names)
    program.target = target
    program.required = support.required_operators(graph)
    program.metadata = _metadata(model, digest)
    report.custom = support.custom_operators(graph)
    return program, describe(report, graph, program)


def lower(model: ir.Model, choices: convolution.Choices | None = None, precision: str = "model") -> Graph:
    """Select kernels, fuse, and lay out."""
    main = select.select(model)
    for graph in main.walk():
        quantised.quantise(graph)
        nhwc.pointwise_products(graph)
        convolution.block_convolutions(graph, choices if graph is main else None, precision)
        fuse.fuse(graph)
        attention.join_products(graph)
        layout.assign_layouts(graph)
    return main


def _defaults(model: ir.Model) -> list[str]:
    """Warn of inputs that a caller could replace in the model, and cannot in the program."""
    frozen = [v.name or "?" for v in model.graph.inputs if v.name in model.graph.initializers]
    if not frozen or (model.ir_version or 0) < 4:  # until IR 4 every weight had to be an input
        return []
    shown = ", ".join(frozen[:4]) + (f" and {len(frozen) - 4} more" if len(frozen) > 4 else "")
    return [f"inputs with a default are constants of the .bin: {shown}"]


def _choice(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UnsupportedError(
            f"unknown {what}", where=f"compile({what}=)", expected=" or ".join(map(repr, allowed)), got=repr(value)
        )


def _metadata(model: ir.Model, digest: str) -> dict[str, str]:
    from opforge import __version__

    own = {
        "source_sha256": digest,
        "compiler": f"opforge {__version__}",
        "producer": " ".join(p for p in (model.producer_name, model.producer_version) if p),
    }
    own = {k: v for k, v in own.items() if v}
    return {**{f"model.{k}": v for k, v in model.metadata_props.items()}, **own}
