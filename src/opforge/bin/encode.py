"""Program to section contents: everything of a .bin but the weights and the frame around the sections."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from opforge.bin.dimensions import DimensionTable
from opforge.bin.layout import (
    ALIGNMENT,
    ATTRIBUTE,
    DIMENSION,
    GRAPH,
    LAYOUT_KINDS,
    NODE,
    OPERATOR,
    PLAN_ENTRY,
    SMALL,
    VALUE,
    VALUE_KINDS,
    AttributeKind,
    Kind,
)
from opforge.bin.program import Graph, GraphRef, Node, Program, Value
from opforge.errors import ArgumentError, InternalError

__all__ = ["STRING", "SUB_BYTE", "Encoded", "Placement", "PlanEntry", "encode", "pack_bits"]

STRING = 8
"""ONNX number of strings."""

SUB_BYTE: dict[int, int] = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
"""ONNX numbers of the types of less than a byte: u4, i4, f4e2m1, u2, i2; bits of an element."""


def pack_bits(codes: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Pack elements of one byte each into the bytes that a file holds, low bits first."""
    flat = np.ascontiguousarray(codes).reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    per = 8 // bits
    lanes = np.pad(flat, (0, -len(flat) % per)).reshape(-1, per)
    shifts = np.arange(per, dtype=np.uint8) * bits
    packed: np.ndarray[Any, np.dtype[np.uint8]] = np.bitwise_or.reduce(lanes << shifts, axis=1).astype(np.uint8)
    return packed


@dataclass(frozen=True)
class PlanEntry:
    """Place of a value (kind 0) or of a node's scratch (kind 1) in the arena, in bytes."""

    kind: int
    id: int
    offset: int
    size: int


@dataclass(frozen=True)
class Placement:
    """Where the bytes of a constant go in the weights."""

    value: int
    offset: int
    size: int


@dataclass(frozen=True)
class Encoded:
    """Contents of the sections (with their record counts) and the order of the weights."""

    sections: dict[Kind, tuple[bytes, int]]
    weights: list[Placement]
    weights_size: int


def encode(program: Program, plan: tuple[int, list[PlanEntry]] | None) -> Encoded:
    """Encode all of a program; the arrays of its constants stay where they are."""
    return _Encoder(program).encode(plan)


def _head(*numbers: int) -> bytes:
    return np.array(numbers, dtype="<u4").tobytes()


def _rows(rows: list[tuple[Any, ...]], dtype: np.dtype[Any]) -> bytes:
    array = np.zeros(len(rows), dtype)
    for k, row in enumerate(rows):
        for field, value in zip(dtype.names or (), row, strict=False):
            array[k][field] = value
    return array.tobytes()


class _Encoder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.strings: dict[str, int] = {}
        for text in program.texts:  # first, so that the constants of strings need no new numbers
            self.text(text)
        if list(self.strings) != program.texts or program.texts[0] != "":
            raise ArgumentError("the texts of a program repeat, or do not begin with the empty one")
        self.dimensions = DimensionTable(self.strings)
        self.ids: list[int] = []
        self.integers: list[int] = []
        self.floats: list[float] = []
        self.blobs: dict[bytes, int] = {}
        self.attributes: list[tuple[Any, ...]] = []

    def encode(self, plan: tuple[int, list[PlanEntry]] | None) -> Encoded:
        placements, weights_size = self._place()
        sections: dict[Kind, tuple[bytes, int]] = {}
        sections[Kind.VALUES] = self._values(placements)
        sections[Kind.PROGRAM] = self._program()
        sections[Kind.SIGNATURE] = self._signature()
        if self.blobs:
            sections[Kind.BYTECODE] = self._bytecode()
        if self.program.required:
            sections[Kind.OPERATORS] = self._operators()
        features = self.program.cpu_features
        text = self.text(self.program.target)
        sections[Kind.TARGET] = (_head(text, len(features), *map(self.text, features)), len(features))
        if self.program.metadata:
            pairs = [self.text(str(part)) for item in self.program.metadata.items() for part in item]
            sections[Kind.METADATA] = (_head(len(pairs) // 2, 0, *pairs), len(pairs) // 2)
        if any(node.origin for graph in self.program.graphs for node in graph.nodes):
            sections[Kind.DEBUG] = self._debug()
        if plan is not None:
            size, entries = plan
            body = _head(len(entries), 0) + np.uint64(size).tobytes()
            rows = _rows([(e.kind, e.id, e.offset, e.size) for e in entries], PLAN_ENTRY)
            sections[Kind.PLAN] = (body + rows, len(entries))
        dims = self.dimensions.rows
        sections[Kind.DIMENSIONS] = (_head(len(dims), 0) + _rows(list(dims), DIMENSION), len(dims))
        sections[Kind.STRINGS] = self._strings()
        return Encoded(dict(sorted(sections.items())), placements, weights_size)

    def text(self, text: str) -> int:
        if "\0" in text:
            raise ArgumentError("a text of the program holds a zero byte", where=repr(text))
        return self.strings.setdefault(text, len(self.strings))

    def _place(self) -> tuple[list[Placement], int]:
        constants = [(k, v.data.nbytes) for k, v in enumerate(self.program.values) if v.data is not None]
        constants.sort(key=lambda item: item[1] > SMALL)  # stable: small ones first, otherwise in order
        placements, offset = [], 0
        for value, size in constants:
            placements.append(Placement(value, offset, size))
            offset += -(-size // ALIGNMENT) * ALIGNMENT
        return placements, offset

    def _values(self, placements: list[Placement]) -> tuple[bytes, int]:
        values = self.program.values
        table = np.zeros(len(values), VALUE)
        dims: list[int] = []
        for k, value in enumerate(values):
            row = table[k]
            row["name"] = self.text(value.name)
            row["dtype"] = value.dtype
            row["rank"] = -1 if value.shape is None else len(value.shape)
            row["layout"] = _layout(value)
            row["halo"] = value.layout.halo
            row["packing"] = self.text(value.packing)
            row["scale"] = row["zero_point"] = -1
            row["kind"] = VALUE_KINDS.index(value.kind)
            row["first_dimension"] = len(dims)
            for dim in value.shape or ():
                dims.append(self.dimensions.add(dim, f"value {value.name!r}"))
            if value.data is not None:
                _check_constant(value)
        for place in placements:
            row = table[place.value]
            row["flags"], row["offset"], row["size"] = 1, place.offset, place.size
        body = _head(len(values), len(dims), 0, 0) + table.tobytes() + np.array(dims, "<u4").tobytes()
        return body, len(values)

    def _program(self) -> tuple[bytes, int]:
        nodes: list[tuple[Any, ...]] = []
        graphs: list[tuple[Any, ...]] = []
        for graph in self.program.graphs:
            first = len(nodes)
            nodes += [self._node(node) for node in graph.nodes]
            lists = [self._id_list(ids, graph) for ids in (graph.inputs, graph.outputs, graph.captures)]
            graphs.append((self.text(graph.name), first, len(graph.nodes), *(n for pair in lists for n in pair)))
        counts: list[list[Any]] = [graphs, nodes, self.attributes, self.ids, self.integers, self.floats]
        body = _head(*(len(items) for items in counts), 0, 0) + _rows(graphs, GRAPH) + _rows(nodes, NODE)
        body += _rows(self.attributes, ATTRIBUTE) + np.array(self.integers, "<i8").tobytes()
        body += np.array(self.ids, "<i4").tobytes() + np.array(self.floats, "<f4").tobytes()
        return body, len(nodes)

    def _id_list(self, ids: list[int], owner: Graph | Node) -> tuple[int, int]:
        for value in ids:
            if not -1 <= value < len(self.program.values):
                raise InternalError("a value index is out of range", where=str(owner), got=value)
        self.ids += ids
        return len(self.ids) - len(ids), len(ids)

    def _node(self, node: Node) -> tuple[Any, ...]:
        inputs, outputs = self._id_list(node.inputs, node), self._id_list(node.outputs, node)
        first = len(self.attributes)
        self.attributes += [self._attribute(node, name, value) for name, value in node.attributes.items()]
        names = (self.text(node.domain), self.text(node.op), node.since_version, int(node.optional))
        return (*names, *inputs, *outputs, first, len(node.attributes))

    def _attribute(self, node: Node, name: str, value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any attribute
        where = f"node {node.op!r}, attribute {name!r}"
        match value:
            case bool() | int() | np.integer():
                kind, payload, count = AttributeKind.INT, int(value) % 2**64, 1
            case float() | np.floating():
                kind, payload, count = AttributeKind.FLOAT, int(np.float64(value).view(np.uint64)), 1
            case str():
                kind, payload, count = AttributeKind.STRING, self.text(value), 1
            case bytes():
                kind, payload, count = AttributeKind.BYTECODE, self.blobs.setdefault(value, len(self.blobs)), 1
            case GraphRef(index=index):
                kind, payload, count = AttributeKind.GRAPH, index, 1
            case list() | tuple() | np.ndarray():
                kind, payload, count = self._list(list(value), where)
            case _:
                raise ArgumentError(
                    "an attribute has a type that a bin cannot hold",
                    where=where,
                    expected="int, float, str, bytes (bytecode), a list of int, float or str, or a subgraph",
                    got=type(value).__name__,
                )
        return self.text(name), int(kind), count, 0, payload

    def _list(self, items: list[Any], where: str) -> tuple[AttributeKind, int, int]:
        if all(isinstance(item, bool | int | np.integer) for item in items):
            self.integers += [int(item) for item in items]
            return AttributeKind.INTS, len(self.integers) - len(items), len(items)
        if all(isinstance(item, bool | int | float | np.integer | np.floating) for item in items):
            self.floats += [float(item) for item in items]
            return AttributeKind.FLOATS, len(self.floats) - len(items), len(items)
        if all(isinstance(item, str) for item in items):
            self.ids += [self.text(item) for item in items]
            return AttributeKind.STRINGS, len(self.ids) - len(items), len(items)
        raise ArgumentError(
            "a list attribute mixes types", where=where, expected="all int, all float or all str", got=items
        )

    def _signature(self) -> tuple[bytes, int]:
        main = self.program.graphs[0]
        values = [*main.inputs, *main.outputs]
        pairs = [part for k in values for part in (self.text(self.program.values[k].name), k)]
        return _head(len(main.inputs), len(main.outputs), *pairs), len(values)

    def _bytecode(self) -> tuple[bytes, int]:
        table, body, offset = [], b"", 8 + 16 * len(self.blobs)
        for blob in self.blobs:
            table += [offset + len(body), len(blob)]
            body += blob + bytes(-len(blob) % 8)
        return _head(len(self.blobs), 0) + np.array(table, "<u8").tobytes() + body, len(self.blobs)

    def _operators(self) -> tuple[bytes, int]:
        rows = []
        for op in self.program.required:
            texts = (op.library, op.schema_hash, op.content_hash, op.signature, op.types)
            rows.append((self.text(op.domain), self.text(op.name), op.version, *map(self.text, texts)))
        return _head(len(rows), 0) + _rows(rows, OPERATOR), len(rows)

    def _debug(self) -> tuple[bytes, int]:
        ranges: list[int] = []
        texts: list[int] = []
        for graph in self.program.graphs:
            for node in graph.nodes:
                ranges += [len(texts), len(node.origin)]
                texts += map(self.text, node.origin)
        named = dict.fromkeys(name for graph in self.program.graphs for node in graph.nodes for name in node.origin)
        known = [(name, self.program.places[name]) for name in named if name in self.program.places]
        places = [self.text(part) for name, place in known for part in (name, place.scope, place.source)]
        count, tail = len(ranges) // 2, [len(known), *places] if known else []
        return _head(count, len(texts), *ranges, *texts, *tail), count

    def _strings(self) -> tuple[bytes, int]:
        parts = [text.encode() for text in self.strings]
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64).astype("<u4")
        return _head(len(parts), 0) + ends.tobytes() + b"".join(parts), len(parts)


def _layout(value: Value) -> int:
    if value.layout.kind not in LAYOUT_KINDS:
        raise ArgumentError("unknown layout", where=value.name, expected=LAYOUT_KINDS, got=value.layout.kind)
    return LAYOUT_KINDS.index(value.layout.kind)


def _check_constant(value: Value) -> None:
    data = value.data
    assert data is not None
    if value.shape is None or not all(isinstance(dim, int) for dim in value.shape):
        raise ArgumentError("a constant needs a shape of numbers", where=value.name, got=value.shape)
    if (
        not value.packing
        and math.prod(d for d in value.shape if isinstance(d, int)) != data.size
        and value.dtype not in SUB_BYTE
    ):
        raise ArgumentError(
            "a constant's data does not fill its shape", where=value.name, expected=value.shape, got=data.shape
        )
