"""What a model must be before any pass sees it: names given once, nodes in order, weights that fill their shapes."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import onnx
import onnx_ir as ir

from opforge.errors import ArgumentError, UnsupportedError

__all__ = ["from_proto", "quietly", "require", "unreadable"]

T = TypeVar("T")


def from_proto(message: onnx.ModelProto) -> ir.Model:
    """Read and check a model in memory.

    Raises:
        ArgumentError: it is none, or contradicts itself (see `require`).
    """
    try:
        model = quietly(ir.from_proto, message)
    except Exception as error:
        raise unreadable("the message is not an ONNX model", error) from error
    require(model)
    return model


def quietly(read: Callable[[Any], T], source: Any) -> T:  # noqa: ANN401 - a path or a message
    """Read without onnx-ir's remarks on names that nothing gives: those become errors of ours."""
    logger = logging.getLogger("onnx_ir")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        return read(source)
    finally:
        logger.setLevel(before)


def unreadable(what: str, error: BaseException, where: str | None = None, hint: str | None = None) -> ArgumentError:
    """Say the innermost cause: what stands around it names whole graphs."""
    while error.__cause__ is not None:
        error = error.__cause__
    return ArgumentError(what, where=where, got=f"{type(error).__name__}: {error}", hint=hint)


def require(model: ir.Model) -> None:
    """Check, and bring nodes into an order in which they can run.

    Raises:
        ArgumentError: an input or output is named twice, nobody makes an output, nodes wait for each other, a weight
            has no dtype, or fewer or more bytes than its shape asks for.
        UnsupportedError: a function calls itself.
    """
    _interface(model.graph)
    _functions(model)
    for graph in _graphs(model):
        _order(graph)
        for value in graph.initializers.values():
            if value.const_value is not None:
                _elements(f"initializer {value.name!r}", value.const_value)
        for node in graph:
            for attr in node.attributes.values():
                if attr.type is ir.AttributeType.TENSOR:
                    _elements(f"{_place(node)}, attribute {attr.name!r}", attr.as_tensor())


def _graphs(model: ir.Model) -> Iterator[ir.Graph]:
    for root in (model.graph, *(f.graph for f in model.functions.values())):
        yield root
        yield from root.subgraphs()


def _place(node: ir.Node) -> str:
    name = node.name or next((repr(o.name) for o in node.outputs if o.name), "without a name")
    return f"node {name} ({node.op_type})"


def _interface(graph: ir.Graph) -> None:
    for what, values in (("input", graph.inputs), ("output", graph.outputs)):
        twice = [name for name, count in Counter(v.name for v in values).items() if count > 1]
        if twice:
            raise ArgumentError(
                f"the model has {what}s of one name",
                where=f"{what}s",
                expected="a name for each",
                got=f"{', '.join(map(repr, twice))} more than once",
                hint="put an Identity between, so that each output has a name" if what == "output" else None,
            )
    for value in graph.outputs:
        if value.producer() is None and not value.is_graph_input() and not value.is_initializer():
            raise ArgumentError(
                "the model gives a value that nothing makes",
                where=f"output {value.name!r}",
                expected="an input, an initializer or the output of a node",
                got=repr(value.name),
            )


def _order(graph: ir.Graph) -> None:
    """Sort a graph that is out of order; those that are in order stay as they are."""
    waiting: set[ir.Node] = set(graph)
    for node in graph:
        if any(maker in waiting for maker in _makers(node, graph)):
            break
        waiting.discard(node)
    else:
        return
    try:
        graph.sort()
    except ValueError as error:
        raise ArgumentError(
            "nodes wait for each other's results",
            where=_place(_in_cycle(graph)),
            expected="a graph without cycles (repetition is the operator Loop)",
        ) from error


def _makers(node: ir.Node, graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield what must run before a node, also for what its subgraphs read."""
    inner = (n for attr in node.attributes.values() for g in _held(attr) for n in g.all_nodes())
    for reader in (node, *inner):
        for value in reader.inputs:
            maker = value.producer() if value is not None else None
            if maker is not None and maker.graph is graph:
                yield maker


def _held(attr: ir.Attr) -> Iterable[ir.Graph]:
    if attr.type is ir.AttributeType.GRAPH:
        return [attr.as_graph()]
    return attr.as_graphs() if attr.type is ir.AttributeType.GRAPHS else []


def _in_cycle(graph: ir.Graph) -> ir.Node:
    """Walk from any node that cannot run to one that it waits for, until one comes again."""
    done: set[ir.Node] = set()
    grown = True
    while grown:
        ready = [n for n in graph if n not in done and all(m in done for m in _makers(n, graph))]
        done.update(ready)
        grown = bool(ready)
    node = next(n for n in graph if n not in done)
    seen: set[ir.Node] = set()
    while node not in seen:
        seen.add(node)
        node = next(m for m in _makers(node, graph) if m not in done)
    return node


def _elements(where: str, tensor: ir.TensorProtocol) -> None:
    """A tensor held in the file itself has the bytes of its shape (external data is checked where it is mapped)."""
    if isinstance(tensor, ir.ExternalTensor) or tensor.dtype is ir.DataType.STRING:
        return
    if tensor.dtype is ir.DataType.UNDEFINED:
        raise ArgumentError("a tensor has no dtype", where=where, expected="a dtype of ONNX", got=tensor.dtype.name)
    dims = [int(d) for d in tensor.shape.numpy()]
    if any(d < 0 for d in dims):
        raise ArgumentError("a tensor has a negative dimension", where=where, expected="0 or more", got=dims)
    raw = getattr(tensor, "raw", None)
    proto_bytes = raw.raw_data if raw is not None and hasattr(raw, "raw_data") and raw.HasField("raw_data") else None
    if proto_bytes is None:
        try:
            tensor.numpy()
        except ValueError as error:
            raise ArgumentError(
                "a tensor has not the elements of its shape",
                where=where,
                expected=f"{math.prod(dims)} of {tensor.dtype.name} {dims}",
                got=str(error),
            ) from error
        return
    wanted = -(-math.prod(dims) * tensor.dtype.bitwidth // 8)
    if len(proto_bytes) != wanted:
        raise ArgumentError(
            "a tensor has not the bytes of its shape",
            where=where,
            expected=f"{wanted} bytes for {tensor.dtype.name} {dims}",
            got=f"{len(proto_bytes)} bytes",
        )


def _functions(model: ir.Model) -> None:
    """Functions are put in place of their calls, which never ends for one that calls itself."""
    calls = {
        key: {n.op_identifier() for n in function.all_nodes()} & set(model.functions)
        for key, function in model.functions.items()
    }
    for key in calls:
        reached, pending = set(), list(calls[key])
        while pending:
            other = pending.pop()
            if other not in reached:
                reached.add(other)
                pending += calls[other]
        if key in reached:
            raise UnsupportedError(
                "a function calls itself", where=f"function {key[0]}::{key[1]}", expected="functions that end"
            )
