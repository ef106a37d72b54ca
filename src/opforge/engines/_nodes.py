"""Operators of ours in a model that an engine is to run: which they are, whether they fit, what bodies stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.onnx._walk import nodes, standard
from opforge.onnx.checker import Problem, custom_problems
from opforge.schema import Operator, discover, registry

if TYPE_CHECKING:
    import onnx

__all__ = ["check_nodes", "kept_functions", "model_operators"]


def model_operators(model: onnx.ModelProto, host: str) -> dict[tuple[str, str], Operator]:
    """Return the registered operators that nodes of the model call, by (domain, name).

    Args:
        model: the model.
        host: the engine, for the error.

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
                f"{host} keeps one version of an operator per session",
                where=operator.qualified_name,
                expected="one version of the domain in the model and its functions",
                got=f"{other.since_version} and {operator.since_version}",
                hint="opforge.onnx.inline_functions, or export the function again",
            )
    return found


def check_nodes(model: onnx.ModelProto, where: str, foreign: Collection[str] = ()) -> MissingOperatorError | None:
    """Hold the model's custom nodes against their declarations.

    Engines take an attribute of a wrong name or type for one that is absent, so this comes before them.

    Args:
        model: the model.
        where: its name, for the error.
        foreign: domains of the engine's own.

    Returns:
        What to raise where the engine knows an operator no more than we do: the nodes without a registered operator
        and without a body. Some may be of other libraries that the engine was given.

    Raises:
        ArgumentError: nodes contradict their declarations; all problems are listed.
        MissingOperatorError: the same, and some nodes have neither a registered operator nor a body.
    """
    discover()
    problems = custom_problems(model, foreign=foreign)
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


def kept_functions(model: onnx.ModelProto, without: Iterable[tuple[str, str]]) -> list[onnx.FunctionProto]:
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
    for kind in (kind for kind in kept if kind in used):  # in the model's order: files are the same in every process
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
