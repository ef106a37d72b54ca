"""What QuantizeLinear and DequantizeLinear say: constants, scales, zero points, and the same as elementwise nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opforge.bin.encode import SUB_BYTE
from opforge.bin.lowering.graph import FLOAT, Node, Value
from opforge.bin.lowering.select import ELEMENTWISE
from opforge.passes._dims import Dim

__all__ = [
    "BYTES",
    "LIMIT",
    "Codes",
    "Weights",
    "bounds",
    "constant",
    "conv_weights",
    "dequantised",
    "elementwise",
    "is_node",
    "matrix_weights",
    "number",
    "operand",
    "settled",
    "vector",
    "weights",
]

Array = np.ndarray[Any, Any]

BYTES = (2, 3)
"""ONNX numbers of u8 and i8."""
_REAL = (17, 18, 19, 20, 23, 24)
"""ONNX numbers of float8 and float4, whose zero point is 0."""
LIMIT = 4 << 20
"""Bytes to which weights of less than 8 bits may grow as f32 in the file; larger ones stay as they are."""


def number(value: Value | None) -> np.float32 | None:
    """Return the number of a one-element f32 constant."""
    if value is None or value.data is None or value.dtype != FLOAT or value.data.size != 1:
        return None
    return np.float32(value.data.reshape(-1)[0])


def is_node(node: Node | None, *names: str) -> bool:
    """Tell whether it is one of the named standard nodes."""
    return node is not None and node.domain == "" and node.op in names


def operand(node: Node, index: int) -> Value | None:
    """Return an input that may be absent."""
    return node.inputs[index] if len(node.inputs) > index else None


def dequantised(node: Node) -> Array | None:
    """Compute a DequantizeLinear of constants in f32, as the runtime does."""
    x, scale, zero = (operand(node, k) for k in range(3))
    if x is None or scale is None or x.data is None or scale.data is None or (zero is not None and zero.data is None):
        return None
    if not fits(node, x.data, scale.data, None if zero is None else zero.data):
        return None  # the runtime says what is wrong
    values = x.data.astype(np.float32)
    if zero is not None and zero.data is not None and x.dtype not in _REAL:
        values = values - _beside(node, zero.data, x.data)
    result: Array = values * _beside(node, scale.data, x.data)
    return result if node.output.dtype == FLOAT else None


def fits(node: Node, x: Array, scale: Array, zero: Array | None) -> bool:
    """Tell whether scale and zero point have the shape that ONNX asks for beside ``x``."""
    if zero is not None and zero.size not in (1, scale.size):
        return False
    if scale.size == 1:
        return True
    axis, block = int(node.attributes.get("axis", 1)), int(node.attributes.get("block_size", 0))
    axis = 0 if x.ndim == 1 else axis
    if not -x.ndim <= axis < x.ndim:
        return False
    if not block:
        return bool(scale.shape == (x.shape[axis],))
    wanted = list(x.shape)
    wanted[axis] = -(-wanted[axis] // block)
    return bool(scale.shape == tuple(wanted))


def _beside(node: Node, data: Array, x: Array) -> Array:
    """Bring a scale or zero point to the shape of ``x`` or one that broadcasts with it."""
    wide = data.astype(np.float32)
    axis, block = int(node.attributes.get("axis", 1)), int(node.attributes.get("block_size", 0))
    if data.size == 1:
        return wide.reshape(())
    axis = 0 if x.ndim == 1 else axis % x.ndim
    if block:
        return np.repeat(wide, block, axis=axis)[tuple(slice(d) for d in x.shape)]
    return wide.reshape([-1 if k == axis else 1 for k in range(x.ndim)])


@dataclass(frozen=True)
class Codes:
    """What the bytes of a tensor stand for: ``(code - zero) * scale``, rounded to f32.

    Attributes:
        dtype: ONNX number of u8 or i8.
        scale: one for the tensor.
        zero: likewise.
    """

    dtype: int
    scale: np.float32
    zero: int

    @classmethod
    def of(cls, node: Node | None) -> Codes | None:
        """Read a QuantizeLinear or DequantizeLinear of f32 with one constant scale and zero point."""
        if node is None or not is_node(node, "QuantizeLinear", "DequantizeLinear"):
            return None
        ends = (node.output, node.inputs[0])
        narrow, wide = ends if node.op == "QuantizeLinear" else ends[::-1]
        scale, zero = number(operand(node, 1)), operand(node, 2)
        single = zero is None or (zero.data is not None and zero.data.size == 1)
        if narrow is None or wide is None or narrow.dtype not in BYTES or wide.dtype != FLOAT or not single:
            return None
        if scale is None or not 0 < scale < np.inf or node.attributes.get("precision", FLOAT) not in (0, FLOAT):
            return None
        return cls(narrow.dtype, scale, 0 if zero is None or zero.data is None else int(zero.data.reshape(-1)[0]))

    @property
    def all(self) -> Array:
        """The 256 codes in the order of their bits."""
        return np.arange(256, dtype=np.uint8).view(np.uint8 if self.dtype == 2 else np.int8)

    def numbers(self, codes: Array) -> Array:
        """Dequantise."""
        result: Array = (codes.astype(np.float32) - np.float32(self.zero)) * self.scale
        return result

    def codes(self, numbers: Array) -> Array:
        """Quantise f32 numbers: half to even, saturated; NaN is code 0."""
        info = np.iinfo(np.uint8 if self.dtype == 2 else np.int8)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = np.rint(np.asarray(numbers, np.float32) / self.scale).astype(np.float64) + self.zero
        return np.where(np.isnan(whole), 0, np.clip(whole, info.min, info.max)).astype(info.dtype)

    def clipped(self, low: float, high: float) -> Array:
        """Return the table that clips codes as their numbers would have been before they were rounded."""
        ends = self.codes(np.array([low, high], np.float32))
        result: Array = np.minimum(np.maximum(self.all, ends[0]), ends[1])
        return result

    def table_to(self, other: Codes) -> Array:
        """Return the table that gives the codes of the same numbers in another quantisation."""
        return other.codes(self.numbers(self.all))


def bounds(node: Node) -> tuple[float, float] | None:
    """Return what a Clip keeps, or a Relu, where the bounds are constant numbers in order."""
    if node.attributes["row"] == "Relu":
        return 0.0, float("inf")
    given = [operand(node, 1), operand(node, 2)]
    ends = [number(v) if v is not None else np.float32(w) for v, w in zip(given, (-np.inf, np.inf), strict=True)]
    if node.attributes["row"] != "Clip" or ends[0] is None or ends[1] is None or not ends[0] <= ends[1]:
        return None
    return float(ends[0]), float(ends[1])


def constant(value: Value | None) -> Array | None:
    """Return the f32 elements of a constant, also of one that is dequantised."""
    if value is None or value.dtype != FLOAT:
        return None
    if value.data is None and is_node(value.producer, "DequantizeLinear"):
        assert value.producer is not None
        return dequantised(value.producer)
    return value.data


def settled(node: Node) -> Array | None:
    """Return what a DequantizeLinear of constants becomes in the file, or None where it stays a node."""
    x = node.inputs[0]
    data = dequantised(node)
    if data is None or x is None or (x.dtype in SUB_BYTE and data.nbytes > LIMIT):
        return None
    return data


@dataclass(frozen=True)
class Weights:
    """Constant bytes for an integer product.

    Attributes:
        value: the source.
        stored: signed bytes; unsigned ones have their top bit turned.
        zero: zero points of the stored bytes, one per output or one for all.
        scale: likewise.
    """

    value: Value
    stored: Array
    zero: Array
    scale: Array

    @property
    def is_symmetric(self) -> bool:
        """Whether every zero point of the stored bytes is 0."""
        return not self.zero.any()

    def centred(self, axis: int) -> Weights:
        """Take off the zero points, of each output along ``axis``, where what is left is bytes still."""
        shape = [1] * self.stored.ndim
        shape[axis] = self.zero.size
        left = self.stored.astype(np.int16) - self.zero.astype(np.int16).reshape(shape)
        if self.is_symmetric or left.min() < -128 or left.max() > 127:
            return self
        return replace(self, stored=left.astype(np.int8), zero=np.zeros(1, np.int32))

    def whole(self, group: int) -> Weights:
        """Write images of a convolution with groups as those of one without: other channels have the zero point."""
        outputs, inner, *window = self.stored.shape
        zeros = self.zero.astype(np.int8).reshape(-1, 1, 1, 1)
        data = np.broadcast_to(zeros, (outputs, inner * group, *window)).copy()
        for g, rows in enumerate(np.split(np.arange(outputs), group)):
            data[rows, g * inner : (g + 1) * inner] = self.stored[rows]
        return replace(self, stored=data)

    def stacked(self) -> Weights:
        """Write images less their zero points as bytes, one below the other, whose sum they are."""
        left = self.stored.astype(np.int16) - self.zero.astype(np.int16).reshape(-1, 1, 1, 1)
        parts: list[Array] = []
        while not parts or left.any():
            parts.append(np.clip(left, -128, 127).astype(np.int8))
            left = left - parts[-1]
        return replace(self, stored=np.concatenate(parts, axis=2), zero=np.zeros(1, np.int32))

    @classmethod
    def of(cls, value: Value, zero: Array | None, scale: Array) -> Weights | None:
        """Take bytes and the zero point and scale beside them."""
        if value.data is None or value.dtype not in BYTES:
            return None
        turned = value.dtype == 2
        stored = (value.data ^ np.uint8(0x80)).view(np.int8) if turned else value.data
        zeros = np.zeros(1, np.int32) if zero is None else zero.astype(np.int32).reshape(-1)
        if zero is None or not turned:
            zeros = zeros - (128 if turned else 0)
        else:
            zeros = zeros - 128
        return cls(value, stored, zeros, np.asarray(scale, np.float32).reshape(-1))


def weights(value: Value | None, axis: int, outputs: int) -> Weights | None:
    """Read DequantizeLinear of constant bytes with one scale, or one for each of the ``outputs`` along ``axis``."""
    node = value.producer if value is not None else None
    if value is None or value.dtype != FLOAT or not is_node(node, "DequantizeLinear"):
        return None
    assert node is not None
    x, scale, zero = (operand(node, k) for k in range(3))
    if x is None or x.data is None or scale is None or scale.data is None or scale.dtype != FLOAT:
        return None
    if zero is not None and (zero.data is None or zero.data.size not in (1, scale.data.size)):
        return None
    if scale.data.size != 1:
        by = int(node.attributes.get("axis", 1)) % x.data.ndim
        if node.attributes.get("block_size", 0) or by != axis % x.data.ndim or scale.data.shape != (outputs,):
            return None
    return Weights.of(x, None if zero is None else zero.data, scale.data)


def matrix_weights(node: Node) -> Weights | None:
    """Weights ``[K, N]``, perhaps stored as ``[N, K]`` behind a Transpose."""
    value = node.inputs[1]
    turned = value is not None and is_node(value.producer, "Transpose")
    if turned and value is not None and value.producer is not None:
        value = value.producer.inputs[0]
    source = value.producer.inputs[0] if value is not None and value.producer is not None else None
    if source is None or source.data is None or source.data.ndim != 2 or not source.data.size:
        return None
    w = weights(value, 0 if turned else 1, source.data.shape[0 if turned else 1])
    if w is None or not turned:
        return w
    return Weights(w.value, np.ascontiguousarray(w.stored.T), w.zero, w.scale)


def conv_weights(node: Node) -> Weights | None:
    """Weights of a convolution of images."""
    value = node.inputs[1]
    source = value.producer.inputs[0] if value is not None and value.producer is not None else None
    if source is None or source.data is None or source.data.ndim != 4 or not source.data.size:
        return None
    return weights(value, 0, source.data.shape[0])


def elementwise(node: Node, wide_codes: dict[Value, Value]) -> list[Node] | None:
    """Write QuantizeLinear or DequantizeLinear of one f32 scale in elementwise nodes, which fuse with neighbours.

    Args:
        node: the conversion.
        wide_codes: bytes to the same numbers as f32, for a conversion back; a QuantizeLinear is added.
    """
    x, scale, zero = (operand(node, k) for k in range(3))
    factor = number(scale)
    if (
        x is None
        or factor is None
        or scale is None
        or (zero is not None and (zero.data is None or zero.data.size != 1))
    ):
        return None
    narrow = node.output if node.op == "QuantizeLinear" else x
    if narrow.dtype not in BYTES or node.attributes.get("precision", FLOAT) not in (0, FLOAT):
        return None
    wide = x if node.op == "QuantizeLinear" else node.output
    if wide.dtype != FLOAT or x.dims is None:
        return None
    offset = 0 if zero is None or zero.data is None else int(zero.data.reshape(-1)[0])
    least, most = (0, 255) if narrow.dtype == 2 else (-128, 127)
    made: list[Node] = []

    def held(amount: float) -> Value:
        return Value(f"{node.output.name}__number", FLOAT, [], np.array(amount, np.float32))

    def step(row: str, source: Value, *others: Value, last: Value | None = None, to: int | None = None) -> Value:
        out = last or Value(f"{node.output.name}__{row}{len(made)}", FLOAT, x.dims)
        held_ = {"row": row, "attributes": {} if to is None else {"to": to}}
        made.append(Node("opforge", ELEMENTWISE, 1, [source, *others], [out], held_, node.origin))
        return out

    if node.op == "DequantizeLinear":
        value = wide_codes[x] if x in wide_codes else step("Cast", x, to=FLOAT)
        value = step("Sub", value, held(offset)) if offset else value
        step("Mul", value, held(float(factor)), last=node.output)
        return made
    value = step("Round", step("Div", x, held(float(factor))))
    value = step("Add", value, held(offset)) if offset else value
    value = wide_codes[node.output] = step("Clip", value, held(least), held(most))
    step("Cast", value, last=node.output, to=narrow.dtype)
    return made


def vector(name: str, data: Array, dtype: int) -> Value:
    """Make a constant of one dimension."""
    return Value(name, dtype, [Dim.of(d) for d in data.shape], data)
