"""A .tflite file as far as a session needs it: inputs, outputs, custom nodes; and the form in which LiteRT runs these.

LiteRT gives one state to all custom nodes of a name, so nodes with different options need names of their own; it
passes constants to custom nodes only where they lie at multiples of 64 bytes; and an absent input ends the process.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from opforge.engines._protocol import TensorInfo
from opforge.engines.litert._dtypes import dtype_of_file
from opforge.errors import ArgumentError, CorruptFileError, MissingOperatorError, OpforgeError, UnsupportedError
from opforge.frameworks._names import tensorflow_name
from opforge.schema import Operator, discover, registry

__all__ = ["ALIGNMENT", "TfliteModel", "aligned_copy", "base_name", "pack"]

ALIGNMENT: Final = 64
"""LITERT_HOST_MEMORY_BUFFER_ALIGNMENT."""

_CUSTOM: Final = 32  # BuiltinOperator.CUSTOM
_IDENTIFIER: Final = b"TFL3"

# What the generated reader raises at offsets that lead nowhere.
_BROKEN: Final = (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, MemoryError)


def schema() -> ModuleType:
    """Return the generated reader and writer of the format.

    Raises:
        ModuleNotFoundError: LiteRT is not installed.
    """
    from opforge.engines.litert._library import version

    version()
    from ai_edge_litert import schema_py_generated

    found: ModuleType = schema_py_generated
    return found


def base_name(code: str) -> str:
    """Drop what tells nodes of one operator apart: ``com.example::X:1#2`` is ``com.example::X:1``."""
    return code.partition("#")[0]


@dataclass(frozen=True)
class _Node:
    """A custom node."""

    operator: Any  # OperatorT
    code: str
    options: bytes


class TfliteModel:
    """A model in memory.

    Attributes:
        where: for messages.
        path: the file, None for one that was never written.
        inputs: of the first signature, or of the first graph.
        outputs: their names.
        output_infos: the same with dtypes and dimensions.
        codes: names of its custom nodes.
    """

    def __init__(self, source: str | Path | bytes) -> None:
        """Read it.

        Raises:
            ArgumentError: there is no such file, or it is no .tflite file.
            CorruptFileError: it is damaged.
            DtypeError: an input or output has a dtype that NumPy has no arrays of.
            UnsupportedError: two inputs, or two outputs, have one name.
        """
        self.path = None if isinstance(source, bytes) else Path(source)
        self.where = "model" if self.path is None else str(self.path)
        if isinstance(source, bytes):
            self.data = source
        else:
            path = Path(source)
            if not path.is_file():
                raise ArgumentError("the model does not exist", where=self.where, expected="a .tflite file")
            self.data = path.read_bytes()
        if self.data[4:8] != _IDENTIFIER:
            got = "an empty file" if not self.data else f"a file that begins with {self.data[:8]!r}"
            raise ArgumentError("not a .tflite model", where=self.where, expected="the mark TFL3 at byte 4", got=got)
        try:
            self._read()
        except OpforgeError:
            raise
        except _BROKEN as problem:
            raise self._corrupt(f"{type(problem).__name__}: {problem}") from None

    def _corrupt(self, got: str) -> CorruptFileError:
        return CorruptFileError("the model is damaged", where=self.where, got=got, hint="fetch or write the file again")

    def _read(self) -> None:
        root = schema().Model.GetRootAs(self.data, 0)
        self.tree = schema().ModelT.InitFromObj(root)
        if not self.tree.subgraphs or not self.tree.buffers:
            raise self._corrupt("no graph")
        self.graph = self.tree.subgraphs[0]
        names: dict[int, str] = {}
        self.signature = bool(self.tree.signatureDefs)
        if self.signature:
            signature = self.tree.signatureDefs[0]
            self.graph = self.tree.subgraphs[signature.subgraphIndex]
            for entry in (*(signature.inputs or ()), *(signature.outputs or ())):
                names[int(entry.tensorIndex)] = _text(entry.name)
        self._check()
        self.inputs = [self._info(int(k), names) for k in _items(self.graph.inputs)]
        self.output_infos = [self._info(int(k), names) for k in _items(self.graph.outputs)]
        self.outputs = [info.name for info in self.output_infos]
        for kind, infos in (("inputs", self.inputs), ("outputs", self.output_infos)):
            if len({info.name for info in infos}) != len(infos):
                raise UnsupportedError(f"two {kind} have one name", where=self.where, got=[i.name for i in infos])
        self.codes = sorted({node.code for node in self._custom()})

    def _check(self) -> None:
        """Hold every number that is an index against what it counts."""
        for graph in self.tree.subgraphs:
            tensors = graph.tensors or []
            indices = [*_items(graph.inputs), *_items(graph.outputs)]
            for node in graph.operators or []:
                if not 0 <= node.opcodeIndex < len(self.tree.operatorCodes):
                    raise self._corrupt(f"a node of kind {node.opcodeIndex} of {len(self.tree.operatorCodes)}")
                indices += [*(k for k in _items(node.inputs) if k != -1), *_items(node.outputs)]
            if any(not 0 <= k < len(tensors) for k in indices):
                raise self._corrupt(f"a tensor that is not among {len(tensors)}")
            if any(not 0 <= tensor.buffer < len(self.tree.buffers) for tensor in tensors):
                raise self._corrupt(f"a buffer that is not among {len(self.tree.buffers)}")

    def _info(self, index: int, names: dict[int, str]) -> TensorInfo:
        tensor = self.graph.tensors[index]
        name = names.get(index) or _text(tensor.name) or f"tensor_{index}"
        open_dims = _items(tensor.shapeSignature)
        shape = [int(d) for d in _items(tensor.shape)]
        if len(open_dims) == len(shape):
            shape = [d if s >= 0 else s for d, s in zip(shape, open_dims, strict=True)]
        dtype = dtype_of_file(int(tensor.type), f"{self.where}, {name}").numpy
        return TensorInfo(name, dtype, tuple(None if d < 0 else d for d in shape))

    def _custom(self) -> Iterator[_Node]:
        for graph in self.tree.subgraphs:
            for node in graph.operators or []:
                code = self.tree.operatorCodes[node.opcodeIndex]
                if max(int(code.builtinCode), int(code.deprecatedBuiltinCode)) == _CUSTOM:
                    options = bytes(bytearray(_items(node.customOptions)))
                    yield _Node(node, _text(code.customCode), options)

    def node_kind(self, index: int) -> str | None:
        """Name what the node at this place of the graph computes; None behind the end, where delegates stand."""
        nodes = self.graph.operators or []
        if not 0 <= index < len(nodes):
            return None
        code = self.tree.operatorCodes[nodes[index].opcodeIndex]
        number = max(int(code.builtinCode), int(code.deprecatedBuiltinCode))
        if number == _CUSTOM:
            return base_name(_text(code.customCode))
        names = vars(schema().BuiltinOperator)
        return next((name for name, value in names.items() if value == number), f"operator {number}")

    def operators(self, defined: Collection[str] = ()) -> dict[str, Operator]:
        """Return the operators that custom nodes call, by the nodes' names.

        Args:
            defined: names that the adapter knows without a declaration.

        Raises:
            MissingOperatorError: some are not registered; all are listed.
        """
        if not self.codes:
            return {}
        discover()
        known = registry.operators(all_versions=True)
        by_name = {key: operator for key, operator in known.items()}
        by_name |= {tensorflow_name(o.domain, o.name, o.since_version): o for o in known.values()}
        found = {code: by_name.get(base_name(code)) for code in self.codes}
        missing = [code for code, operator in found.items() if operator is None and base_name(code) not in defined]
        if missing:
            rows = []
            for code in missing:
                near = registry.nearest(base_name(code), by_name)
                rows.append(f"\n    {code}" + (f" (did you mean {near}?)" if near else ""))
            raise MissingOperatorError(
                "custom nodes of the model have no registered operator",
                where=self.where,
                got="".join(rows),
                hint="load the package that declares them with opforge.load(...) or --package",
            )
        return {code: operator for code, operator in found.items() if operator is not None}

    def prepared(self) -> TfliteModel:
        """Return the model in the form in which LiteRT runs its custom nodes: this one, where it already is.

        Raises:
            UnsupportedError: a custom node has an absent input in the form of the file format.
        """
        aligned, absent = set(), False
        places = self._places()
        for graph in self.tree.subgraphs:
            for node in graph.operators or []:
                code = self.tree.operatorCodes[node.opcodeIndex]
                if max(int(code.builtinCode), int(code.deprecatedBuiltinCode)) != _CUSTOM:
                    continue
                inputs = _items(node.inputs)
                absent = absent or any(k == -1 for k in inputs)
                buffers = {int(graph.tensors[k].buffer) for k in inputs if k >= 0}
                aligned |= {b for b in buffers if places.get(b, 0) % ALIGNMENT}
        if absent:
            raise UnsupportedError(
                "a custom node has an absent input, which ends LiteRT's process",
                where=self.where,
                expected="absent inputs told by the options of the node, as opforge.litert.convert writes them",
            )
        renamed = self._distinct()
        if not renamed and not aligned:
            return self
        return TfliteModel(pack(self.tree, aligned))

    def _places(self) -> dict[int, int]:
        """Return where the data of each buffer begin in the file."""
        root = schema().Model.GetRootAs(self.data, 0)
        found = {}
        for index in range(root.BuffersLength()):
            table = root.Buffers(index)._tab
            offset = table.Offset(4)
            if offset:
                found[index] = int(table.Vector(offset))
        return found

    def _distinct(self) -> bool:
        """Give nodes of one name and different options names of their own."""
        kinds: dict[str, dict[bytes, int]] = {}
        nodes = list(self._custom())
        for node in nodes:
            kinds.setdefault(node.code, {}).setdefault(node.options, node.operator.opcodeIndex)
        changed = False
        for node in nodes:
            options = kinds[node.code]
            place = list(options).index(node.options)
            if place == 0:
                continue
            changed = True
            if options[node.options] == next(iter(options.values())):
                code = schema().OperatorCodeT()
                code.builtinCode, code.deprecatedBuiltinCode, code.version = _CUSTOM, _CUSTOM, 1
                code.customCode = f"{base_name(node.code)}#{self._free(node.code)}".encode()
                self.tree.operatorCodes.append(code)
                options[node.options] = len(self.tree.operatorCodes) - 1
            node.operator.opcodeIndex = options[node.options]
        return changed

    def _free(self, code: str) -> int:
        taken = {_text(c.customCode) for c in self.tree.operatorCodes}
        return next(k for k in range(1, len(taken) + 2) if f"{base_name(code)}#{k}" not in taken)


def _items(value: Any) -> Any:  # noqa: ANN401 - a list, an array or None
    return [] if value is None else value


def _text(value: Any) -> str:  # noqa: ANN401 - bytes or None
    return "" if value is None else value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def pack(tree: Any, aligned: set[int]) -> bytes:  # noqa: ANN401 - a ModelT
    """Write a model; the data of the buffers named begin at multiples of 64 bytes."""
    import flatbuffers

    aligned_class = _aligned_buffer()
    for index in aligned:
        tree.buffers[index].__class__ = aligned_class
    size = sum(len(_items(buffer.data)) for buffer in tree.buffers)
    builder = flatbuffers.Builder(size + (1 << 16))
    builder.Finish(tree.Pack(builder), file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


def _aligned_buffer() -> type:
    generated = schema()

    class AlignedBuffer(generated.BufferT):  # type: ignore[misc, name-defined]
        """A buffer whose data are aligned."""

        def Pack(self, builder: Any) -> Any:  # noqa: ANN401 - the generated name
            """Write it; the generated code aligns to 16 bytes or fewer."""
            data = np.asarray(self.data, np.uint8)
            builder.StartVector(1, data.size, ALIGNMENT)
            head = builder.head - data.size
            builder.head = head
            builder.Bytes[head : head + data.size] = data.tobytes()
            place = builder.EndVector()
            generated.BufferStart(builder)
            generated.BufferAddData(builder, place)
            return generated.BufferEnd(builder)

    return AlignedBuffer


def aligned_copy(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Copy bytes to where LiteRT takes them."""
    memory = aligned_memory(len(data))
    memory[: len(data)] = np.frombuffer(data, np.uint8)
    return memory


def aligned_memory(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return memory at a multiple of 64 bytes, with room behind it that XNNPACK may read."""
    room = np.empty(size + 2 * ALIGNMENT + _BEHIND, np.uint8)
    skip = -room.ctypes.data % ALIGNMENT
    return room[skip : skip + size + _BEHIND]


_BEHIND: Final = 128
