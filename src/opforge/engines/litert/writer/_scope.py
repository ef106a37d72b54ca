"""One graph being lowered: which tensor of the file each value is, and what the rows of the table write with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from opforge.engines.litert.writer._file import File, Graph
from opforge.errors import UnsupportedError
from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of
from opforge.schema import DType

__all__ = ["OpenShapeError", "Row", "Scope", "refuse"]

Array = np.ndarray[Any, Any]
Dims = Sequence[int | None]

TO_IMAGES: Final = (0, 2, 3, 1)
"""LiteRT's convolutions take channels last."""
FROM_IMAGES: Final = (0, 3, 1, 2)


class OpenShapeError(UnsupportedError):
    """A node can only be written for known sizes."""


class Scope:
    """Values of one ONNX graph in one graph of the file."""

    def __init__(self, file: File, graph: Graph, outer: Scope | None = None) -> None:
        self.file = file
        self.graph = graph
        self.outer = outer
        self.names: set[str] = set()
        self._tensors: dict[ir.Value, int] = {}
        self._images: dict[ir.Value, int] = {}  # the same value with channels last

    # ---- what is known of a value

    @staticmethod
    def dims(value: ir.Value) -> list[int | None]:
        """Return its dimensions, None for those that are open."""
        dims = dims_of(value)
        if dims is None:
            raise OpenShapeError("the rank of a value is not known", where=value.name or None, hint=_SHAPES)
        return [d.constant for d in dims]

    def known(self, value: ir.Value) -> list[int]:
        """Return its dimensions.

        Raises:
            OpenShapeError: one is open.
        """
        dims = self.dims(value)
        if any(d is None for d in dims):
            text = ["?" if d is None else d for d in dims]
            raise OpenShapeError("the node needs sizes that are not known", where=value.name, got=text, hint=_SHAPES)
        return [d for d in dims if d is not None]

    @staticmethod
    def dtype(value: ir.Value) -> str:
        """Return the name of its element type."""
        if value.dtype is None:
            raise UnsupportedError("the element type of a value is not known", where=value.name)
        return DType.from_onnx(int(value.dtype)).name

    # ---- tensors

    def tensor(self, value: ir.Value | None) -> int:
        """Return the tensor of a value that a node reads."""
        assert value is not None
        found = self._tensors.get(value)
        if found is None and value in self._images:
            found = self.new(self.dtype(value), self.dims(value), value.name or "")
            self.transpose(self._images[value], found, FROM_IMAGES)
            self._tensors[value] = found
        if found is None:
            data = _edit.array(value)
            if data is None:
                raise UnsupportedError("a value has no place in this graph", where=value.name)
            found = self._tensors[value] = self._constant(value, data)
        return found

    def images(self, value: ir.Value | None) -> int:
        """Return a value of four dimensions with its channels last."""
        assert value is not None
        found = self._images.get(value)
        if found is None:
            dims = self.dims(value)
            data = _edit.array(value)
            turned = [dims[k] for k in TO_IMAGES]
            if data is not None:
                found = self.constant(np.ascontiguousarray(data.transpose(TO_IMAGES)))
            else:
                found = self.new(self.dtype(value), turned)
                self.transpose(self.tensor(value), found, TO_IMAGES)
            self._images[value] = found
        return found

    def is_images(self, value: ir.Value | None) -> bool:
        """Whether a value is there with channels last only."""
        return value in self._images and value not in self._tensors

    def define(self, value: ir.Value) -> int:
        """Add the tensor of a value that a node, or the caller, gives."""
        found = self._tensors[value] = self.new(self.dtype(value), self.dims(value), value.name or "")
        return found

    def define_images(self, value: ir.Value) -> int:
        """Add a value of four dimensions with its channels last; the other form is made where somebody reads it."""
        dims = self.dims(value)
        found = self._images[value] = self.new(self.dtype(value), [dims[k] for k in TO_IMAGES])
        return found

    def alias(self, value: ir.Value, tensor: int) -> None:
        """Let a value be a tensor that is there."""
        self._tensors[value] = tensor

    def _constant(self, value: ir.Value, data: Array) -> int:
        return self.graph.tensor(self._free(value.name or "constant"), self.dtype(value), data.shape, data)

    def constant(self, data: Array | Sequence[int]) -> int:
        """Add a constant; a list is one of int32, as LiteRT's axes and shapes are."""
        array = np.asarray(data, np.int32) if not isinstance(data, np.ndarray) else data
        return self.graph.tensor(self._free("constant"), DType.parse(array.dtype).name, array.shape, array)

    def scalar(self, number: float, dtype: str) -> int:
        """Add a constant without dimensions."""
        return self.constant(np.array(number, DType.parse(dtype).numpy))

    def new(self, dtype: str, dims: Dims, name: str = "") -> int:
        """Add a tensor that a node gives."""
        return self.graph.tensor(self._free(name or "value"), dtype, dims)

    def _free(self, name: str) -> str:
        free, k = name, 0
        while free in self.names:
            k += 1
            free = f"{name}_{k}"
        self.names.add(free)
        return free

    # ---- nodes

    def node(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], options: str = "", **fields: Any) -> None:  # noqa: ANN401
        """Add a node of an operator that LiteRT has."""
        self.graph.node(kind, inputs, outputs, options, **fields)

    def made(self, kind: str, inputs: Sequence[int], dtype: str, dims: Dims, options: str = "", **fields: Any) -> int:  # noqa: ANN401
        """Add a node with one output between others, and return that."""
        out = self.new(dtype, dims)
        self.graph.node(kind, inputs, [out], options, **fields)
        return out

    def transpose(self, tensor: int, out: int, perm: Sequence[int]) -> None:
        """Add a Transpose."""
        self.node("TRANSPOSE", [tensor, self.constant(list(perm))], [out], "TransposeOptions")

    def reshape(self, tensor: int, out: int, dims: Dims, where: ir.Value) -> None:
        """Add a Reshape to dimensions of which at most one is open."""
        shape = [-1 if d is None else d for d in dims]
        if shape.count(-1) > 1:
            raise OpenShapeError("the node needs sizes that are not known", where=where.name, hint=_SHAPES)
        self.node("RESHAPE", [tensor, self.constant(shape)], [out], "ReshapeOptions", newShape=shape)

    def integers(self, value: ir.Value | None) -> list[int] | None:
        """Return the numbers of a constant; None where there is no input.

        Raises:
            OpenShapeError: it is computed.
        """
        if value is None:
            return None
        data = _edit.array(value)
        if data is None:
            raise OpenShapeError("the node needs a constant here", where=value.name, hint=_SHAPES)
        return [int(v) for v in data.reshape(-1)]


Row = Callable[[Scope, ir.Node], None]
"""Writes one node."""

_SHAPES: Final = "give the shapes of the inputs: opforge.litert.convert(model, path, shapes={...})"


def refuse(node: ir.Node, what: str, got: object = None) -> UnsupportedError:
    """Make the error of a node that LiteRT has no operator for."""
    kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return UnsupportedError(what, where=f"node {node.name or node.outputs[0].name!r} ({kind})", got=got)
