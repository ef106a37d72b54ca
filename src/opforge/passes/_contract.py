"""What a graph pass promises: a module with NAME, REQUIRES, ENSURES and ``call(model) -> number of changes``.

REQUIRES and ENSURES name properties of a model from the table below, so that a wrong order of passes is an error
at once and the tests can check what a pass says about itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, cast

import onnx_ir as ir

from opforge.errors import InternalError
from opforge.passes import _edit

__all__ = ["PROPERTIES", "GraphPass", "as_pass", "missing", "run"]


class GraphPass(Protocol):
    """A pass module."""

    NAME: str
    REQUIRES: tuple[str, ...]
    ENSURES: tuple[str, ...]

    def call(self, model: ir.Model) -> int:
        """Change the model in place; return how many places changed."""


def _has_no_functions(model: ir.Model) -> bool:
    return not model.functions


def _constants_are_initializers(model: ir.Model) -> bool:
    return all(n.op_type != "Constant" or n.domain for g in _edit.graphs(model) for n in g)


def _is_sorted(model: ir.Model) -> bool:
    for graph in _edit.graphs(model):
        seen: set[ir.Node] = set()
        for node in graph:
            for value in node.inputs:
                producer = value.producer() if value is not None else None
                if producer is not None and producer.graph is graph and producer not in seen:
                    return False
            seen.add(node)
    return True


def _has_shapes(model: ir.Model) -> bool:
    return all("dims" in o.meta or o.shape is None for n in model.graph for o in n.outputs)


PROPERTIES: dict[str, Callable[[ir.Model], bool]] = {
    "no_functions": _has_no_functions,
    "constants": _constants_are_initializers,
    "sorted": _is_sorted,
    "shapes": _has_shapes,
}
"""Property of a model -> its check."""


def as_pass(module: object) -> GraphPass:
    """See a module as a pass (a module satisfies the protocol, which a type checker cannot tell)."""
    return cast(GraphPass, module)


def missing(model: ir.Model, properties: Iterable[str]) -> list[str]:
    """Return those of ``properties`` that the model does not have."""
    return [p for p in properties if not PROPERTIES[p](model)]


def run(model: ir.Model, graph_pass: GraphPass, *, check: bool = False) -> int:
    """Run one pass; with ``check`` its requirements and promises are tested around the call.

    Raises:
        InternalError: the pass was called on a model that it does not take, or broke its promise.
    """
    if check and (lacking := missing(model, graph_pass.REQUIRES)):
        raise InternalError("a pass was run too early", where=graph_pass.NAME, expected=lacking)
    changes = graph_pass.call(model)
    if check and (lacking := missing(model, ("sorted", *graph_pass.ENSURES))):
        raise InternalError("a pass broke its promise", where=graph_pass.NAME, expected=lacking)
    return changes
