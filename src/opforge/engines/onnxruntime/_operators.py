"""Which operators of ours a model uses, and making them known to the adapter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from opforge.build import LoadedLibrary
from opforge.engines import _nodes
from opforge.engines.onnxruntime._adapter import adapter
from opforge.errors import MissingOperatorError
from opforge.onnx._walk import nodes
from opforge.schema import Operator

if TYPE_CHECKING:
    import onnx

__all__ = ["adapted", "check_nodes", "has_gaps", "model_operators", "register_library"]

OWN_DOMAINS = ("com.microsoft", "com.microsoft.nchwc")
"""What ONNX Runtime's quantiser, transformer tools and offline optimisation write."""


def model_operators(model: onnx.ModelProto) -> dict[tuple[str, str], Operator]:
    """Return the registered operators that nodes of the model call, by (domain, name); one version of each."""
    return _nodes.model_operators(model, "ONNX Runtime")


def check_nodes(model: onnx.ModelProto, where: str) -> MissingOperatorError | None:
    """Hold the model's custom nodes against their declarations, as `opforge.engines._nodes.check_nodes` says."""
    return _nodes.check_nodes(model, where, OWN_DOMAINS)


def register_library(library: LoadedLibrary) -> list[str]:
    """Make every operator of a kernel library known, gradient operators too; return their keys.

    Raises:
        ArgumentError: another operator of the same name and version is known.
    """
    for operator in library.operators.values():
        adapter().define(operator.address)
    return list(library.operators)


def has_gaps(model: onnx.ModelProto, used: Mapping[tuple[str, str], Operator]) -> bool:
    """Whether a node of ours leaves out an output, which ONNX Runtime wants named."""
    return any(True for place in nodes(model) for _ in _gaps(place.node, used))


def _gaps(node: onnx.NodeProto, used: Mapping[tuple[str, str], Operator]) -> Iterator[int]:
    operator = used.get((node.domain, node.op_type))
    if operator is not None:
        for index, output in enumerate(operator.signature.outputs):
            absent = index >= len(node.output) or not node.output[index]
            if absent and not output.optional and not output.variadic:
                yield index


def adapted(model: onnx.ModelProto, used: Mapping[tuple[str, str], Operator]) -> onnx.ModelProto:
    """Return a copy without the bodies of operators that run by kernels, and with a name for each of their outputs."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for place in nodes(copy):
        for index in list(_gaps(place.node, used)):
            name = f"opforge_unused_{id(place.node):x}_{index}"
            if index < len(place.node.output):
                place.node.output[index] = name
            else:
                place.node.output.append(name)
    kept = _nodes.kept_functions(copy, used)
    del copy.functions[:]
    copy.functions.extend(kept)
    return copy
