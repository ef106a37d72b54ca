"""Export TensorFlow and Keras models to ONNX with our operators as custom-domain nodes, by tf2onnx."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opforge.errors import ArgumentError, ExportError, OpforgeError
from opforge.onnx import _tensorflow_large
from opforge.onnx._quiet import quiet
from opforge.onnx._rename import rename_values
from opforge.onnx._tensorflow_inputs import traced
from opforge.onnx._versions import settle_versions
from opforge.onnx._write import write_model
from opforge.onnx.checker import check_model
from opforge.onnx.functions import complete_model
from opforge.onnx.shapes import infer_shapes
from opforge.schema import Operator, registry

if TYPE_CHECKING:
    import onnx

    from opforge.frameworks.tensorflow import Entry

    _Converted = tuple[onnx.ModelProto, list[str], Mapping[str, _tensorflow_large.Weight]]

__all__ = ["DEFAULT_OPSET", "export"]

DEFAULT_OPSET: Final = 18
"""The newest that tf2onnx writes."""


def export(
    model: Any,  # noqa: ANN401 - a Keras model, a function, or a path
    path: str | Path | None = None,
    *,
    input_signature: Sequence[Any] | None = None,
    opset: int | None = None,
) -> onnx.ModelProto:
    """Export a Keras model, a function or a SavedModel, and write it to ``path``.

    What the model holds besides is as ``opforge.torch.export`` writes it: domains and versions, typed attributes,
    shapes by the operators' rules, function bodies, metadata.

    Args:
        model: a Keras model (functional, Sequential or subclassed), a function of tensors (``tf.function``, concrete
            or plain), a ``tf.Module`` that is called, or the folder of a SavedModel.
        path: file to write, atomically; None writes nothing. Weights that do not fit into one message (2 GiB) go to
            a file beside it.
        input_signature: a ``tf.TensorSpec`` (or an example) per input; not needed where the model says it (a Keras
            model with known inputs or one that has been called, a function with a signature, a SavedModel).
        opset: version of the default domain; 18, the newest that tf2onnx writes, when not given.

    Returns:
        The model.

    Raises:
        ArgumentError: tf2onnx is not installed, the inputs are not known, or there is no such opset.
        ExportError: the model cannot be converted, or what was made does not pass the checker; every problem is
            listed.
    """
    from onnx import defs

    if find_spec("tf2onnx") is None:
        raise ArgumentError("tf2onnx is not installed", where="export", hint="pip install 'opforge[tensorflow]'")
    version = DEFAULT_OPSET if opset is None else opset
    if not 13 <= version <= DEFAULT_OPSET:
        raise ArgumentError("tf2onnx does not write this opset", where="export", expected="13 to 18", got=version)
    where = os.fspath(model) if isinstance(model, str | os.PathLike) else type(model).__name__
    function, specs = traced(model, input_signature, where)
    try:
        made, names, weights = _convert(function, specs, version, where)
    except OpforgeError:
        raise
    except Exception as problem:
        raise ExportError(
            "tf2onnx cannot convert this model", where=where, got=f"{type(problem).__name__}: {problem}"
        ) from problem
    unknown = sorted({n.op_type for n in made.graph.node if not n.domain and not defs.has(n.op_type)})
    if unknown:
        raise ExportError("tf2onnx cannot convert operations of this model", where=where, got=", ".join(unknown))
    rename_values(made, [spec.name for spec in specs], names)
    complete_model(made)
    made = infer_shapes(made)
    problems = check_model(made)
    if problems:
        listed = "".join(f"\n    {problem}" for problem in problems)
        raise ExportError(f"the exported model has {len(problems)} problems", where=where, got=listed)
    if weights and path is None:
        raise ArgumentError(
            "the weights do not fit into a model without files", where=where, hint="give the path of a file"
        )
    if weights:
        _tensorflow_large.attach(made, weights, Path(path or ""))
    elif path is not None:
        write_model(made, Path(path))
    return made


def _convert(function: Callable[..., Any], specs: list[Any], opset: int, where: str) -> _Converted:
    import tensorflow as tf
    import tf2onnx
    from onnx import helper

    from opforge.frameworks.tensorflow import all_entries

    outputs: list[str] = []

    def flat(*tensors: Any) -> list[Any]:  # noqa: ANN401
        result = function(*tensors)
        rows = (
            result
            if isinstance(result, Mapping)
            else {f"output_{k}" if k else "output": t for k, t in enumerate(tf.nest.flatten(result))}
        )
        outputs[:] = rows
        return list(rows.values())

    whole = tf.function(flat, input_signature=specs, autograph=False)
    concrete = whole.get_concrete_function()  # tracing registers the operators that are called
    _refuse_bfloat16(concrete.graph)
    entries = [entry for entry in all_entries() if _declared(entry) is not None]
    domains: dict[str, int] = {}
    operators: list[Operator] = []
    for entry in entries:
        domain, _, version = entry.key.replace("::", ":").split(":")
        domains[domain] = max(int(version), domains.get(domain, 1))
    options = {
        "opset": opset,
        "custom_op_handlers": {entry.name: (_handler, [entry.name, entry, operators]) for entry in entries},
        "extra_opset": [helper.make_opsetid(domain, version) for domain, version in domains.items()],
    }
    weights: dict[str, _tensorflow_large.Weight] = {}
    # what goes wrong is an error of ours
    with quiet("tf2onnx", logging.CRITICAL):
        if _tensorflow_large.weight_bytes(concrete) > _tensorflow_large.LARGE:
            ends = [[t.name for t in side if t.dtype != tf.resource] for side in (concrete.inputs, concrete.outputs)]
            graph, weights = _tensorflow_large.freeze(concrete, *ends)
            inputs = [*ends[0][: len(specs)], *(f"{name}:0" for name in weights)]
            made, _ = tf2onnx.convert.from_graph_def(graph, input_names=inputs, output_names=ends[1], **options)
        else:
            made, _ = tf2onnx.convert.from_function(whole, input_signature=specs, **options)
    used = {operator.domain for operator in operators}
    keep = [item for item in made.opset_import if item.domain in used or item.domain not in domains]
    del made.opset_import[:]
    made.opset_import.extend(keep)
    settle_versions(made, operators, where)
    return made, outputs, weights


def _refuse_bfloat16(graph: Any) -> None:  # noqa: ANN401 - a FuncGraph
    """tf2onnx writes float16 where TensorFlow says bfloat16, without a word."""
    import tensorflow as tf

    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    for node in nodes:
        if any(value.type == tf.bfloat16.as_datatype_enum for value in node.attr.values()):
            raise ExportError(
                "tf2onnx has no bfloat16",
                where=f"node {node.name} ({node.op})",
                expected="float32, float16 or float64",
                hint="export the model with float32 layers (dtype policy float32, or mixed_float16)",
            )


def _declared(entry: Entry) -> Any:  # noqa: ANN401 - an Operator, or None
    domain, name, version = entry.key.replace("::", ":").split(":")
    operator = registry.find(domain, name, int(version))
    return None if operator is None or operator.is_gradient else operator


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {"int": int, "float": float, "string": lambda v: v}


def _handler(graph: Any, node: Any, _name: str, args: Sequence[Any]) -> None:  # noqa: ANN401
    """Put a node of our domain in the place of TensorFlow's: lists become parameters, attributes keep their kinds."""
    from onnx import AttributeProto, helper

    entry, used = args[-2:]  # the first may be the type that tf2onnx gives the node before
    inputs, outputs = (
        _placed(node, side, counters)
        for side, counters in ((node.input, entry.input_counts), (node.output, entry.output_counts))
    )
    operator = _declared(entry)
    used.append(operator)
    shapes = [graph.get_shape(o) if o else None for o in outputs]
    dtypes = [graph.get_dtype(o) if o else None for o in outputs]
    given = {}
    for attribute, name in zip(entry.signature.attributes, entry.attributes, strict=True):
        value = node.get_attr_value(name)
        kind = attribute.kind.replace("bool", "int")
        code = AttributeProto.AttributeType.Value(kind.upper())
        read = _READERS[kind.removesuffix("s")]
        plain = [read(v) for v in value] if kind.endswith("s") else read(value)
        given[attribute.name] = helper.make_attribute(attribute.name, plain, attr_type=code)
    graph.remove_node(node.name)
    made = graph.make_node(
        operator.name, inputs, outputs=outputs, shapes=shapes, dtypes=dtypes, name=node.name, domain=operator.domain
    )
    made.attr.update(given)


def _placed(node: Any, names: Sequence[str], counters: Sequence[str]) -> list[str]:  # noqa: ANN401
    """Give an absent parameter its place, "", before parameters that are there."""
    rest = iter(names)
    placed: list[str] = []
    for counter in counters:
        count = node.get_attr_value(counter) if counter else 1
        placed += [next(rest) for _ in range(count)] or [""]
    while placed and not placed[-1]:
        placed.pop()
    return placed
