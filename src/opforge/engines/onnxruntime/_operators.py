"""Which operators of ours a model uses, and making them known to the adapter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from opforge.build import LoadedLibrary, library_for
from opforge.engines.onnxruntime._adapter import adapter
from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.onnx._walk import nodes, standard
from opforge.onnx.checker import Problem, custom_problems
from opforge.schema import Operator, discover, registry

if TYPE_CHECKING:
    import onnx

__all__ = ["adapted", "check_nodes", "define", "has_gaps", "model_operators", "register_library"]

OWN_DOMAINS = ("com.microsoft", "com.microsoft.nchwc")
"""What ONNX Runtime's quantiser, transformer tools and offline optimisation write."""


def model_operators(model: onnx.ModelProto) -> dict[tuple[str, str], Operator]:
    """Return the registered operators that nodes of the model call, by (domain, name).

    Raises:
        UnsupportedError: the graph and a function of the model import two versions of one.
    """
    custom = [place for place in nodes(model) if not standard(place.node.domain)]
    if custom:
        discover()
    found: dict[tuple[str, str], Operator] = {}
    for place in custom:
        kind = (place.node.domain, place.node.op_type)
        operator = registry.find(*kind, place.opsets.get(kind[0]))
        if operator is None:
            continue
        other = found.setdefault(kind, operator)
        if other is not operator:
            raise UnsupportedError(
                "ONNX Runtime keeps one version of an operator per session",
                where=operator.qualified_name,
                expected="one version of the domain in the model and its functions",
                got=f"{other.since_version} and {operator.since_version}",
                hint="opforge.onnx.inline_functions, or export the function again",
            )
    return found


def check_nodes(model: onnx.ModelProto, where: str) -> MissingOperatorError | None:
    """Hold the model's custom nodes against their declarations.

    ONNX Runtime takes an attribute of a wrong name or type for one that is absent, so this comes before it.

    Returns:
        What to raise where ONNX Runtime knows an operator no more than we do: the nodes without a registered operator
        and without a body. Some may be of other libraries that the session's options hold.

    Raises:
        ArgumentError: nodes contradict their declarations; all problems are listed.
        MissingOperatorError: the same, and some nodes have neither a registered operator nor a body.
    """
    discover()
    problems = custom_problems(model, foreign=OWN_DOMAINS)
    if not problems:
        return None
    rows = "".join(f"\n    {problem}" for problem in problems)
    missing = [problem for problem in problems if _is_missing(problem)]
    kind = MissingOperatorError if missing else ArgumentError
    error = kind("custom nodes do not fit their operators", where=where, got=rows)
    if isinstance(error, MissingOperatorError) and len(missing) == len(problems):
        return error
    raise error


def _is_missing(problem: Problem) -> bool:
    return problem.what.startswith(("nobody registered", "the imported version"))


def define(operators: Iterable[Operator]) -> list[str]:
    """Build (or find) the kernels of operators and make them known to the adapter; return their keys."""
    keys = []
    for operator in operators:
        adapter().define(library_for([operator]).operator(operator.key).address)
        keys.append(operator.key)
    return keys


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
    kept = _reachable(copy, used)
    del copy.functions[:]
    copy.functions.extend(kept)
    return copy


def _reachable(model: onnx.ModelProto, without: Iterable[tuple[str, str]]) -> list[onnx.FunctionProto]:
    """Copy the functions that the graph still calls, directly or through others, when those of ``without`` go."""
    gone = set(without)
    kept = {(f.domain, f.name): f for f in model.functions if (f.domain, f.name) not in gone}
    called = {(p.node.domain, p.node.op_type) for p in nodes(model, functions=False)}
    used: set[tuple[str, str]] = set()
    pending = [kind for kind in kept if kind in called]
    while pending:
        kind = pending.pop()
        if kind not in used:
            used.add(kind)
            pending += [(n.domain, n.op_type) for n in _nodes(kept[kind]) if (n.domain, n.op_type) in kept]
    found = []
    for kind in used:
        function = type(kept[kind])()
        function.CopyFrom(kept[kind])
        found.append(function)
    return found


def _nodes(function: onnx.FunctionProto) -> list[onnx.NodeProto]:
    found, pending = [], [list(function.node)]
    while pending:
        for node in pending.pop():
            found.append(node)
            pending += [list(graph.node) for a in node.attribute for graph in (a.g, *a.graphs) if graph.node]
    return found
