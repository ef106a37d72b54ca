"""Section contents back to a Program. The native verifier judges a file; here every access is checked by NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from opforge.bin.dimensions import dimension_text
from opforge.bin.encode import STRING, SUB_BYTE, PlanEntry
from opforge.bin.layout import (
    ATTRIBUTE,
    DIMENSION,
    GRAPH,
    LAYOUT_KINDS,
    NODE,
    OPERATOR,
    PLAN_ENTRY,
    VALUE,
    VALUE_KINDS,
    AttributeKind,
    Kind,
)
from opforge.bin.program import Graph, GraphRef, Layout, Node, Place, Program, RequiredOperator, Value
from opforge.errors import CorruptFileError

__all__ = ["NUMPY_DTYPES", "decode"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Plan = tuple[int, list[PlanEntry]]

NUMPY_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    8: np.dtype(object),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
}
"""ONNX TensorProto.DataType number to the NumPy dtype; those of less than a byte have one byte per element there, and
strings are arrays of objects."""


def decode(path: Path, contents: Mapping[Kind, Bytes]) -> tuple[Program, Plan | None]:
    """Turn the sections of a file into a program and its memory plan."""
    for kind in (Kind.STRINGS, Kind.DIMENSIONS, Kind.VALUES, Kind.PROGRAM, Kind.SIGNATURE, Kind.TARGET):
        if kind not in contents:
            raise CorruptFileError("a section is missing", where=str(path), expected=kind.name.lower())
    try:
        return _Decoder(contents).decode()
    except (IndexError, ValueError, UnicodeDecodeError, KeyError, OverflowError) as error:
        raise CorruptFileError(
            "the contents of a section contradict each other", where=str(path), got=str(error)
        ) from error


class _Decoder:
    def __init__(self, contents: Mapping[Kind, Bytes]) -> None:
        self.contents = contents
        self.strings = self._strings()
        self.blobs = self._blobs()

    def decode(self) -> tuple[Program, Plan | None]:
        program = Program(
            values=self._values(), graphs=self._graphs(), required=self._required(), places=self._places()
        )
        program.texts = list(self.strings)
        target = self._numbers(Kind.TARGET)
        program.target = self.strings[target[0]]
        program.cpu_features = [self.strings[k] for k in target[2 : 2 + target[1]]]
        if Kind.METADATA in self.contents:
            pairs = self._numbers(Kind.METADATA)[2:]
            program.metadata = {self.strings[k]: self.strings[v] for k, v in zip(pairs[::2], pairs[1::2], strict=True)}
            if 2 * len(program.metadata) != len(pairs):
                raise ValueError("two entries of the metadata have the same key")
        return program, self._plan()

    def _numbers(self, kind: Kind) -> list[int]:
        numbers: list[int] = self.contents[kind].view("<u4").tolist()
        return numbers

    def _take(self, kind: Kind, offset: int, dtype: np.dtype[Any] | str, count: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.contents[kind], dtype, count, offset)

    def _strings(self) -> list[str]:
        count = int(self._take(Kind.STRINGS, 0, "<u4", 1)[0])
        ends = [0, *self._take(Kind.STRINGS, 8, "<u4", count).tolist()]
        body = self.contents[Kind.STRINGS][8 + 4 * count :].tobytes()
        return [body[a:b].decode() for a, b in pairwise(ends)]

    def _blobs(self) -> list[bytes]:
        if Kind.BYTECODE not in self.contents:
            return []
        count = int(self._take(Kind.BYTECODE, 0, "<u4", 1)[0])
        table = self._take(Kind.BYTECODE, 8, "<u8", 2 * count).reshape(-1, 2).tolist()
        return [self.contents[Kind.BYTECODE][offset : offset + size].tobytes() for offset, size in table]

    def _values(self) -> list[Value]:
        count, n_dims = self._take(Kind.VALUES, 0, "<u4", 2).tolist()
        records = self._take(Kind.VALUES, 16, VALUE, count)
        ids = self._take(Kind.VALUES, 16 + VALUE.itemsize * count, "<u4", n_dims).tolist()
        n_rows = int(self._take(Kind.DIMENSIONS, 0, "<u4", 1)[0])
        rows = [tuple(r) for r in self._take(Kind.DIMENSIONS, 8, DIMENSION, n_rows).tolist()]
        values = []
        for r in records:
            first, rank = int(r["first_dimension"]), int(r["rank"])
            shape = None if rank < 0 else [dimension_text(rows, self.strings, k) for k in ids[first : first + rank]]
            top, left, bottom, right = r["halo"].tolist()
            layout = Layout(LAYOUT_KINDS[r["layout"]], (top, left, bottom, right))
            value = Value(self.strings[r["name"]], int(r["dtype"]), shape, layout, None, self.strings[r["packing"]])
            value.kind = VALUE_KINDS[r["kind"]]
            if r["flags"] & 1:
                value.data = self._constant(value, int(r["offset"]), int(r["size"]))
            values.append(value)
        return values

    def _constant(self, value: Value, offset: int, size: int) -> np.ndarray[Any, Any]:
        data = self.contents[Kind.WEIGHTS][offset : offset + size]
        dtype = np.dtype("<u4") if value.dtype == STRING else NUMPY_DTYPES.get(value.dtype)
        if dtype is None or value.dtype in SUB_BYTE:
            return data  # packed, as it lies in the file
        typed = data.view(dtype)
        dims = [d for d in value.shape or () if isinstance(d, int)]
        return typed.reshape(dims) if not value.packing and math.prod(dims) == typed.size else typed

    def _graphs(self) -> list[Graph]:
        counts = self._take(Kind.PROGRAM, 0, "<u4", 6).tolist()
        offset = 32
        arrays: list[np.ndarray[Any, Any]] = []
        order: list[tuple[np.dtype[Any] | str, int]] = [
            (GRAPH, 0),
            (NODE, 1),
            (ATTRIBUTE, 2),
            ("<i8", 4),
            ("<i4", 3),
            ("<f4", 5),
        ]
        for dtype, index in order:
            arrays.append(self._take(Kind.PROGRAM, offset, dtype, counts[index]))
            offset += arrays[-1].nbytes
        graphs, nodes, attributes, integers, ids, floats = arrays
        origins = self._origins(counts[1])

        def ids_of(row: Any, field: str) -> list[int]:  # noqa: ANN401 - a NumPy record
            first = int(row[f"first_{field}"])
            found: list[int] = ids[first : first + int(row[f"{field}s"])].tolist()
            return found

        def attribute(row: Any) -> Any:  # noqa: ANN401 - any attribute
            payload, count = int(row["payload"]), int(row["count"])
            match AttributeKind(int(row["kind"])):
                case AttributeKind.INT:
                    return int(np.uint64(payload).view(np.int64))
                case AttributeKind.FLOAT:
                    return float(np.uint64(payload).view(np.float64))
                case AttributeKind.STRING:
                    return self.strings[payload]
                case AttributeKind.INTS:
                    return integers[payload : payload + count].tolist()
                case AttributeKind.FLOATS:
                    return floats[payload : payload + count].tolist()
                case AttributeKind.STRINGS:
                    return [self.strings[k] for k in ids[payload : payload + count]]
                case AttributeKind.BYTECODE:
                    return self.blobs[payload]
                case AttributeKind.GRAPH:
                    return GraphRef(payload)

        def node(k: int) -> Node:
            row = nodes[k]
            first = int(row["first_attribute"])
            own = attributes[first : first + int(row["attributes"])]
            return Node(
                self.strings[row["domain"]],
                self.strings[row["op"]],
                int(row["since_version"]),
                ids_of(row, "input"),
                ids_of(row, "output"),
                {self.strings[a["name"]]: attribute(a) for a in own},
                origins[k],
                bool(int(row["flags"]) & 1),
            )

        return [
            Graph(
                self.strings[g["name"]],
                ids_of(g, "input"),
                ids_of(g, "output"),
                ids_of(g, "capture"),
                [node(k) for k in range(int(g["first_node"]), int(g["first_node"]) + int(g["nodes"]))],
            )
            for g in graphs
        ]

    def _origins(self, nodes: int) -> list[list[str]]:
        if Kind.DEBUG not in self.contents:
            return [[] for _ in range(nodes)]
        numbers = self._numbers(Kind.DEBUG)
        texts = numbers[2 + 2 * numbers[0] :]
        ranges = zip(numbers[2 : 2 + 2 * nodes : 2], numbers[3 : 3 + 2 * nodes : 2], strict=False)
        return [[self.strings[k] for k in texts[first : first + count]] for first, count in ranges]

    def _places(self) -> dict[str, Place]:
        if Kind.DEBUG not in self.contents:
            return {}
        numbers = self._numbers(Kind.DEBUG)
        first = 2 + 2 * numbers[0] + numbers[1]
        count = numbers[first] if first < len(numbers) else 0  # the part is optional
        texts = [self.strings[k] for k in numbers[first + 1 : first + 1 + 3 * count]]
        return {
            name: Place(scope, source) for name, scope, source in zip(texts[::3], texts[1::3], texts[2::3], strict=True)
        }

    def _required(self) -> list[RequiredOperator]:
        if Kind.OPERATORS not in self.contents:
            return []
        count = int(self._take(Kind.OPERATORS, 0, "<u4", 1)[0])
        found = []
        for row in self._take(Kind.OPERATORS, 8, OPERATOR, count):
            texts = {name: self.strings[row[name]] for name in OPERATOR.names or () if name != "version"}
            found.append(RequiredOperator(version=int(row["version"]), **texts))
        return found

    def _plan(self) -> Plan | None:
        if Kind.PLAN not in self.contents:
            return None
        count = int(self._take(Kind.PLAN, 0, "<u4", 1)[0])
        size = int(self._take(Kind.PLAN, 8, "<u8", 1)[0])
        rows = self._take(Kind.PLAN, 16, PLAN_ENTRY, count).tolist()
        return size, [PlanEntry(*row) for row in rows]
