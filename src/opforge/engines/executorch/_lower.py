"""From a PyTorch module to a .pte: ``torch.export``, the edge dialect, out variants of our operators, memory plan."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.export import ExportedProgram

from opforge import __version__
from opforge._files import whole_file
from opforge.engines._protocol import Array
from opforge.engines.executorch._adapter import unfit
from opforge.engines.executorch._variants import add_variant, entry_named, kernel_name
from opforge.errors import ArgumentError, ExportError, OpforgeError, UnsupportedError
from opforge.frameworks.torch import Entry
from opforge.frameworks.torch._arrays import to_tensor
from opforge.schema import Operator

__all__ = ["METADATA", "lower", "lower_operator"]

METADATA: Final = "opforge_metadata"
"""Method of a .pte that returns what we say of it, as JSON."""


def lower(
    model: torch.nn.Module | ExportedProgram,
    args: tuple[Any, ...] = (),
    path: str | Path | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,  # noqa: ANN401 - torch.export takes nested tuples, lists and dicts
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    partitioners: Sequence[Any] = (),
) -> bytes:
    """Lower a module in evaluation mode (or an exported program) to a .pte and write it to ``path``.

    Nodes of ours stay what they are, in the form with given outputs that ExecuTorch calls; the rest of the graph is
    ExecuTorch's.

    Args:
        model: a module, or what ``torch.export.export`` made of one.
        args: example inputs of a module.
        path: file to write, atomically; None writes nothing.
        kwargs: example keyword inputs of a module.
        dynamic_shapes: as ``torch.export.export`` takes them. Every dynamic dimension needs an upper bound
            (``torch.export.Dim("n", max=64)``): ExecuTorch plans its memory ahead.
        input_names: names of the inputs, in the order of the flat inputs; those of the program when not given.
        output_names: names of the outputs.
        partitioners: of ExecuTorch, for backends that take over parts of the graph.

    Returns:
        The content of the file.

    Raises:
        ExportError: torch or ExecuTorch cannot take the model; its words are under ``got``.
        UnsupportedError: ExecuTorch is not here, or cannot express a call of an operator of ours.
    """
    reason = unfit()
    if reason is not None:
        raise UnsupportedError("ExecuTorch cannot be used here", where="lower", got=reason[0], hint=reason[1])
    where = type(model).__name__
    # The graph is changed in places.
    program = (
        copy.deepcopy(model)
        if isinstance(model, ExportedProgram)
        else _export(model, args, dict(kwargs or {}), dynamic_shapes)
    )
    entries = _prepare(program)
    metadata = _metadata(program, entries, input_names, output_names)
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    level = logging.getLogger().level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            edge = to_edge_transform_and_lower(
                program,
                partitioner=list(partitioners) or None,
                constant_methods={METADATA: json.dumps(metadata)},
                compile_config=EdgeCompileConfig(_check_ir_validity=False),
            )
            made: bytes = edge.to_executorch().buffer
    except OpforgeError:
        raise
    except Exception as problem:
        raise ExportError(
            "ExecuTorch cannot lower this model", where=where, got=f"{type(problem).__name__}: {problem}"
        ) from problem
    finally:
        logging.getLogger().setLevel(level)
    if path is not None:
        with whole_file(Path(path)) as file:
            file.write_bytes(made)
    return made


class _One(torch.nn.Module):
    """A module that computes one operator; ``given`` says which inputs are there."""

    def __init__(self, operator: Operator, given: Sequence[bool], attributes: Mapping[str, Any]) -> None:
        super().__init__()
        self.operator, self.given, self.attributes = operator, given, dict(attributes)

    def forward(self, *tensors: torch.Tensor) -> Any:  # noqa: ANN401
        rest = iter(tensors)
        return self.operator(*(next(rest) if there else None for there in self.given), **self.attributes)


def lower_operator(
    operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any], path: Path
) -> dict[str, Array]:
    """Lower a module that computes one operator on inputs like these, and give its inputs by name."""
    arrays = [np.asarray(array, order="C") for array in inputs if array is not None]
    feeds = {f"x{k}": array for k, array in enumerate(arrays)}
    module = _One(operator, [array is not None for array in inputs], attributes)
    lower(module, tuple(map(to_tensor, arrays)), path, input_names=list(feeds))
    return feeds


def _export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,  # noqa: ANN401
) -> ExportedProgram:
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic_shapes)
    except Exception as problem:
        raise ExportError(
            "torch cannot export this module",
            where=type(module).__name__,
            got=f"{type(problem).__name__}: {problem}",
            hint="see torch.export for what a module may do; operators of opforge export as they are",
        ) from problem
    finally:
        module.train(training)


def _prepare(program: ExportedProgram) -> dict[str, Entry]:
    """Give every operator of ours in the program its out variant, and refuse calls that ExecuTorch cannot make."""
    found: dict[str, Entry] = {}
    for node in _calls(program):
        name = node.target._schema.name
        entry = found.get(name) or entry_named(name)
        if entry is None or node.target is not entry.overload:
            continue
        found[name] = entry
        overload = add_variant(entry)
        for attribute in entry.signature.attributes:
            if attribute.kind == "strings" and node.kwargs.get(attribute.name) is not None:
                raise UnsupportedError(
                    "ExecuTorch has no lists of texts",
                    where=f"{entry.where}, attribute {attribute.name}",
                    expected="the default, left out of the call",
                    got=repr(node.kwargs[attribute.name]),
                )
        if node.target is not overload:  # one that takes every attribute
            given = {a.name: a.default_value for a in node.target._schema.arguments if a.kwarg_only}
            node.kwargs = given | node.kwargs
            node.target = overload
    return found


def _calls(program: ExportedProgram) -> Iterator[Any]:
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                    yield node


def _metadata(
    program: ExportedProgram,
    entries: Mapping[str, Entry],
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> dict[str, Any]:
    """Say what a .pte has no place for: names, symbolic dimensions, the declarations that nodes were made with."""
    signature = program.graph_signature
    places = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    names = [name for name in signature.user_inputs if isinstance(name, str)]
    # A model may return numbers too: they have no name.
    outputs = [name if isinstance(name, str) else f"output{k}" for k, name in enumerate(signature.user_outputs)]
    for what, given, wanted in (("input_names", input_names, names), ("output_names", output_names, outputs)):
        if given is not None and len(given) != len(wanted):
            raise ArgumentError(f"{what} does not fit", where="lower", expected=f"{len(wanted)} names", got=list(given))
    rows = []
    for name, shown in zip(names, input_names or names, strict=True):
        value = places[name]
        shape = list(value.shape) if isinstance(value, torch.Tensor) else []
        rows.append({"name": shown, "shape": [_dimension(program, shown, k, size) for k, size in enumerate(shape)]})
    return {
        "opforge": __version__,
        "inputs": rows,
        "outputs": list(output_names or outputs),
        "operators": {kernel_name(entry): entry.library.schema_hash for entry in entries.values()},
    }


def _dimension(program: ExportedProgram, name: str, axis: int, size: Any) -> int | str:  # noqa: ANN401 - int or SymInt
    if isinstance(size, int):
        return size
    expression = size.node.expr
    for symbol in expression.free_symbols:
        bounds = program.range_constraints.get(symbol)
        if bounds is None or bool(bounds.upper >= 1 << 31):  # ExecuTorch's sizes have 32 bits
            raise ExportError(
                "a dynamic dimension has no upper bound",
                where=f"input {name}, dimension {axis}",
                expected='one, as ExecuTorch plans its memory ahead: torch.export.Dim("n", max=64)',
                got=f"{expression} in {bounds.lower}..{bounds.upper}" if bounds is not None else str(expression),
            )
    return str(expression)
