"""A .tflite file under construction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opforge.engines.litert._dtypes import FILE_NUMBERS
from opforge.engines.litert._model import pack, schema

__all__ = ["File", "Graph"]

Array = np.ndarray[Any, Any]
Dims = Sequence[int | None]

_NO_CUSTOM = ""
_FIRST_VERSIONS = {130: 2}
"""Kinds whose first version LiteRT does not have: BROADCAST_TO."""


class File:
    """Kinds of nodes, constants and graphs, which all graphs of a file share."""

    def __init__(self, description: str) -> None:
        generated = schema()
        self.schema = generated
        self.tree = generated.ModelT()
        self.tree.version = 3
        self.tree.description = description.encode()
        self.tree.operatorCodes = []
        self.tree.buffers = [generated.BufferT()]
        self.tree.subgraphs = []
        self.tree.signatureDefs = []
        self._aligned: set[int] = set()
        self._kinds: dict[tuple[int, str], int] = {}
        self._constants: dict[int, tuple[Array, int]] = {}
        self._options: dict[str, list[bytes]] = {}

    def kind(self, number: int, custom: str = _NO_CUSTOM) -> int:
        """Return the place of a kind of nodes."""
        place = self._kinds.get((number, custom))
        if place is None:
            code = self.schema.OperatorCodeT()
            code.builtinCode, code.version = number, _FIRST_VERSIONS.get(number, 1)
            code.deprecatedBuiltinCode = min(number, 127)
            if custom:
                code.customCode = custom.encode()
            place = self._kinds[number, custom] = len(self.tree.operatorCodes)
            self.tree.operatorCodes.append(code)
        return place

    def custom_kind(self, key: str, options: bytes) -> int:
        """Return the place of a custom kind; LiteRT has one state per name, so other options need another one."""
        known = self._options.setdefault(key, [])
        if options not in known:
            known.append(options)
        place = known.index(options)
        return self.kind(self.schema.BuiltinOperator.CUSTOM, key if place == 0 else f"{key}#{place}")

    def buffer(self, data: Array) -> int:
        """Return the place of a constant's bytes; an array is stored once."""
        known = self._constants.get(id(data))
        if known is not None:
            return known[1]
        holder = self.schema.BufferT()
        holder.data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.tree.buffers.append(holder)
        place = len(self.tree.buffers) - 1
        self._constants[id(data)] = (data, place)  # keeps the array, so that its identity stays its own
        return place

    def align(self, buffer: int) -> None:
        """Let a constant lie where LiteRT passes it to custom nodes."""
        if buffer:
            self._aligned.add(buffer)

    def graph(self, name: str) -> Graph:
        """Add a graph; the first is the model's."""
        return Graph(self, name)

    def finish(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> bytes:
        """Write the file; names of the first graph's inputs and outputs go into a signature."""
        signature = self.schema.SignatureDefT()
        signature.signatureKey = b"serving_default"
        signature.subgraphIndex = 0
        signature.inputs = [self._entry(name, index) for name, index in inputs.items()]
        signature.outputs = [self._entry(name, index) for name, index in outputs.items()]
        self.tree.signatureDefs = [signature]
        return pack(self.tree, self._aligned)

    def _entry(self, name: str, index: int) -> Any:  # noqa: ANN401 - a TensorMapT
        entry = self.schema.TensorMapT()
        entry.name, entry.tensorIndex = name.encode(), index
        return entry


class Graph:
    """One graph of a file."""

    def __init__(self, file: File, name: str) -> None:
        self.file = file
        self.tree = file.schema.SubGraphT()
        self.tree.name = name.encode()
        self.tree.tensors, self.tree.operators = [], []
        self.place = len(file.tree.subgraphs)
        file.tree.subgraphs.append(self.tree)

    def tensor(self, name: str, dtype: str, dims: Dims, data: Array | None = None) -> int:
        """Add a tensor: a constant where there are data, None for open dimensions."""
        made = self.file.schema.TensorT()
        made.name, made.type, made.hasRank = name.encode(), FILE_NUMBERS[dtype], True
        made.shape = [1 if d is None else d for d in dims]
        if any(d is None for d in dims):
            made.shapeSignature = [-1 if d is None else d for d in dims]
        made.buffer = 0 if data is None else self.file.buffer(data)
        self.tree.tensors.append(made)
        return len(self.tree.tensors) - 1

    def node(
        self, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: str = "", **fields: object
    ) -> None:
        """Add a node of an operator that LiteRT has; ``options`` names the table of its fields."""
        generated = self.file.schema
        made = self._node(self.file.kind(getattr(generated.BuiltinOperator, kind)), inputs, outputs)
        if options:
            made.builtinOptionsType = getattr(generated.BuiltinOptions, options)
            made.builtinOptions = getattr(generated, f"{options}T")()
            for name, value in fields.items():
                assert hasattr(made.builtinOptions, name), f"{options} has no field {name}"
                setattr(made.builtinOptions, name, value)

    def custom(self, key: str, options: bytes, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Add a node of an operator of ours."""
        made = self._node(self.file.custom_kind(key, options), inputs, outputs)
        made.customOptions = np.frombuffer(options, np.uint8)
        for index in inputs:
            self.file.align(self.tree.tensors[index].buffer)

    def _node(self, kind: int, inputs: Sequence[int], outputs: Sequence[int]) -> Any:  # noqa: ANN401 - an OperatorT
        made = self.file.schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = kind, list(inputs), list(outputs)
        self.tree.operators.append(made)
        return made
