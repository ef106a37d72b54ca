"""Export a torch module to ONNX with our operators as custom-domain nodes, their bodies and metadata."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.errors import ExportError
from opforge.onnx._quiet import quiet
from opforge.onnx._rename import rename_values
from opforge.onnx._schemas import onnx_schema
from opforge.onnx._versions import settle_versions
from opforge.onnx._walk import check_opset
from opforge.onnx._write import write_model
from opforge.onnx.checker import check_model
from opforge.onnx.functions import complete_model
from opforge.onnx.shapes import infer_shapes
from opforge.schema import Operator, registry

if TYPE_CHECKING:
    import onnx
    import torch

__all__ = ["DEFAULT_OPSET", "export"]

DEFAULT_OPSET = 20


def export(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    path: str | Path | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,  # noqa: ANN401 - torch.export takes nested tuples, lists and dicts
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    dynamo: bool = True,
) -> onnx.ModelProto:
    """Export ``module`` in evaluation mode and write it to ``path``.

    Operators of opforge become nodes of their own domain; domain and opset import stand in the model and in its
    functions, attributes carry their types, value_info comes from the operators' shape rules, formula operators
    have a function body (so that an unmodified runtime runs the model), and the metadata names each operator's
    package and schema hash.

    Args:
        module: what to export.
        args: example inputs.
        path: file to write, atomically; None writes nothing.
        kwargs: example keyword inputs (``dynamo=True`` only).
        dynamic_shapes: as ``torch.export.export`` takes them; with ``dynamo=False`` a mapping from input name to
            ``{axis: name}``.
        input_names: names of the graph's inputs.
        output_names: names of the graph's outputs.
        opset: version of the default domain; 20 when not given.
        dynamo: use torch's exporter on ``torch.export`` (True) or the TorchScript one (False).

    Returns:
        The model.

    Raises:
        ExportError: torch cannot export the module, or the exported model does not pass the checker; every
            problem is listed.
        ArgumentError: there is no such opset.
    """
    import torch

    version = check_opset(DEFAULT_OPSET if opset is None else opset)
    training = module.training
    module.eval()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.no_grad():
                module(*args, **dict(kwargs or {}))  # a first call registers the operators that the module uses
            make = _export_dynamo if dynamo else _export_torchscript
            # lines about packages that have nothing to do with the module
            with quiet("torch.onnx._internal.exporter._registration", logging.ERROR):
                model, used = make(torch, module, args, dict(kwargs or {}), dynamic_shapes, input_names, version)
    except ExportError:
        raise
    except Exception as problem:
        hint = "see torch.export for what a module may do; operators of opforge export as they are"
        if isinstance(problem, ModuleNotFoundError) and problem.name == "onnxscript":
            hint = "pip install 'opforge[torch]'"
        raise ExportError(
            "torch cannot export this module",
            where=type(module).__name__,
            got=f"{type(problem).__name__}: {problem}",
            hint=hint,
        ) from problem
    finally:
        module.train(training)
    settle_versions(model, used, type(module).__name__)
    rename_values(model, input_names or (), output_names or ())
    complete_model(model)
    model = infer_shapes(model)
    problems = check_model(model)
    if problems:
        listed = "".join(f"\n    {problem}" for problem in problems)
        raise ExportError(f"the exported model has {len(problems)} problems", where=type(module).__name__, got=listed)
    if path is not None:
        write_model(model, Path(path))
    return model


def _export_dynamo(
    torch: Any,  # noqa: ANN401 - the module
    module: Any,  # noqa: ANN401
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,  # noqa: ANN401
    input_names: Sequence[str] | None,
    opset: int,
) -> tuple[onnx.ModelProto, list[Operator]]:
    used: list[Operator] = []
    program = torch.onnx.export(
        module,
        args,
        kwargs=kwargs or None,
        dynamo=True,
        custom_translation_table=_translations(used),
        dynamic_shapes=dynamic_shapes,
        opset_version=opset,
        verbose=False,
        optimize=True,
    )
    return program.model_proto, used


def _translations(used: list[Operator]) -> dict[Any, Callable[..., Any]]:
    """One translation per operator that torch knows; a table of this call, no global state.

    Operators that nodes are written for are added to ``used``.
    """
    return {overload: _translation(operator, used) for operator, overload in _registered()}


def _registered() -> list[tuple[Operator, Any]]:
    """Give the operators that torch knows, with their overloads; gradient operators do not occur in inference."""
    from opforge.frameworks.torch import all_entries

    found = []
    for entry in all_entries():
        domain, _, rest = entry.key.partition("::")
        name, _, version = rest.rpartition(":")
        operator = registry.find(domain, name, int(version))
        if operator is not None and operator.key == entry.key and not operator.is_gradient:
            found.append((operator, entry.overload))
    return found


def _translation(operator: Operator, used: list[Operator]) -> Callable[..., Any]:
    from onnxscript.values import Op, Opset

    emit = Op(Opset(operator.domain, operator.since_version), operator.name, onnx_schema(operator))
    inputs = operator.signature.inputs
    names = [a.name for a in operator.signature.attributes]

    def translate(*values: Any, **attributes: Any) -> Any:  # noqa: ANN401 - symbolic tensors of the exporter
        tensors: list[Any] = []
        for parameter, value in zip(inputs, values, strict=False):
            tensors += list(value) if parameter.variadic else [value]
        given = dict(zip(names, values[len(inputs) :], strict=False)) | attributes
        used.append(operator)
        return emit(*tensors, **{name: _attribute(given[name]) for name in names if given.get(name) is not None})

    # The exporter reads the signature; a plain (*values, **attributes) accepts everything.
    return translate


def _attribute(value: Any) -> Any:  # noqa: ANN401
    return int(value) if isinstance(value, bool) else value


def _export_torchscript(
    torch: Any,  # noqa: ANN401
    module: Any,  # noqa: ANN401
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_axes: Any,  # noqa: ANN401
    input_names: Sequence[str] | None,
    opset: int,
) -> tuple[onnx.ModelProto, list[Operator]]:
    import io

    import onnx

    if kwargs:
        raise ExportError("keyword inputs need dynamo=True", where=type(module).__name__, got=sorted(kwargs))
    opsets: dict[str, int] = {}
    used: list[Operator] = []
    for operator, overload in _registered():
        _register_symbolic(torch, operator, overload, opset, used)
        opsets[operator.domain] = max(operator.since_version, opsets.get(operator.domain, 1))
    buffer = io.BytesIO()
    torch.onnx.export(
        module,
        args,
        buffer,
        dynamo=False,
        opset_version=min(opset, 20),
        custom_opsets=opsets,
        input_names=list(input_names) if input_names else None,
        dynamic_axes=dynamic_axes,
    )
    model = onnx.load_from_string(buffer.getvalue())
    names = {
        name for axes in (dynamic_axes or {}).values() for name in (axes.values() if isinstance(axes, Mapping) else ())
    }
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            if dim.dim_param and dim.dim_param not in names:
                dim.ClearField("dim_param")  # a name that the exporter made up; inference fills in what is known
    domains = {operator.domain for operator in used}
    keep = [item for item in model.opset_import if item.domain in domains or item.domain not in opsets]
    del model.opset_import[:]
    model.opset_import.extend(keep)
    return model, used


def _set_type(operator: Operator, tensors: Sequence[Any], parameter: Any, output: Any) -> None:  # noqa: ANN401
    """Tell torch's exporter dtype and rank; our own inference fills in the dimensions afterwards."""
    kinds = {p.type: tensor.type() for p, tensor in zip(operator.signature.inputs, tensors, strict=False)}
    ranks = [tensor.type().dim() for tensor in tensors]
    rank = len(parameter.dims) if not operator.is_formula else None if None in ranks else max(ranks)
    if parameter.type in kinds and rank is not None:
        output.setType(kinds[parameter.type].with_sizes([None] * rank))


def _register_symbolic(torch: Any, operator: Operator, overload: Any, opset: int, used: list[Operator]) -> None:  # noqa: ANN401
    helper = torch.onnx.symbolic_helper
    suffix = {
        "float": "_f",
        "int": "_i",
        "bool": "_i",
        "string": "_s",
        "floats": "_f",
        "ints": "_i",
        "bools": "_i",
        "strings": "_s",
    }
    codes = {
        "float": "f",
        "int": "i",
        "bool": "b",
        "string": "s",
        "floats": "fs",
        "ints": "is",
        "bools": "is",
        "strings": "ss",
    }
    inputs, attributes = operator.signature.inputs, operator.signature.attributes

    def symbolic(graph: Any, *values: Any) -> Any:  # noqa: ANN401
        tensors: list[Any] = []
        for parameter, value in zip(inputs, values, strict=False):
            tensors += helper._unpack_list(value) if parameter.variadic else [value]
        given = {}
        for attribute, value in zip(attributes, values[len(inputs) :], strict=False):
            plain = helper._maybe_get_const(value, codes[attribute.kind])
            if plain is not None:
                given[attribute.name + suffix[attribute.kind]] = _attribute(plain)
        used.append(operator)
        count = len(operator.signature.outputs)
        result = graph.op(f"{operator.domain}::{operator.name}", *tensors, outputs=count, **given)
        for parameter, output in zip(operator.signature.outputs, result if count > 1 else [result], strict=True):
            _set_type(operator, tensors, parameter, output)
        return result

    torch.onnx.register_custom_op_symbolic(overload._schema.name, symbolic, min(opset, 20))
