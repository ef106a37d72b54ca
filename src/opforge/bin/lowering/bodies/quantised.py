"""Bodies of the quantised operators that ONNX Runtime's quantiser writes where ONNX has none: a step and conversions.

The compiler then finds the step between its conversions and runs it on bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from opforge.bin.lowering.bodies._writer import Body
from opforge.passes import _edit

__all__ = ["BODIES"]

DOMAIN = "com.microsoft"


def _real(b: Body, first: int, **attributes: int) -> str:
    """The numbers of a quantised input: its codes, scale and zero point are inputs from ``first`` on."""
    return b.op("DequantizeLinear", *_present(b.inputs[first : first + 3]), **attributes)


def _codes(b: Body, value: str, first: int, like: int = 0) -> str:
    """A value in the quantisation whose scale and zero point are inputs from ``first`` on.

    Without a zero point its codes are of the type of input ``like``.
    """
    zero = b.inputs[first + 1] if b.has(first + 1) else b.number(0, b.inputs[like])
    return b.op("QuantizeLinear", value, b.inputs[first], zero)


def _present(names: list[str]) -> list[str]:
    """An absent zero point at the end is left out."""
    return names[:-1] if names and names[-1] == "" else names


def _pair(op: str) -> Callable[[Body, ir.Node], list[str]]:
    return lambda b, _: [_codes(b, b.op(op, _real(b, 0), _real(b, 3)), 6)]


def _sigmoid(b: Body, _: ir.Node) -> list[str]:
    return [_codes(b, b.op("Sigmoid", _real(b, 0)), 3)]


def _leaky_relu(b: Body, node: ir.Node) -> list[str]:
    return [_codes(b, b.op("LeakyRelu", _real(b, 0), alpha=float(_edit.attribute(node, "alpha", 0.01))), 3)]


def _softmax(b: Body, node: ir.Node) -> list[str]:
    x, axis = _real(b, 0), int(_edit.attribute(node, "axis", -1))
    if int(_edit.attribute(node, "opset", 13)) >= 13:
        return [_codes(b, b.op("Softmax", x, axis=axis), 3)]
    flat = b.op("Softmax", b.op("Flatten", x, axis=axis), axis=-1)
    return [_codes(b, b.op("Reshape", flat, b.op("Shape", x)), 3)]


_WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


def _pool(op: str) -> Callable[[Body, ir.Node], list[str] | None]:
    def rule(b: Body, node: ir.Node) -> list[str] | None:
        if _edit.attribute(node, "channels_last", 0):
            return None
        given = {name: _edit.attribute(node, name) for name in _WINDOW if name in node.attributes}
        return [_codes(b, b.op(op, _real(b, 0), **given), 3)]

    return rule


def _reduce_mean(b: Body, node: ir.Node) -> list[str]:
    axes = _edit.attribute(node, "axes")
    given = [b.integers(*axes)] if axes is not None else []
    keep = int(_edit.attribute(node, "keepdims", 1))
    return [_codes(b, b.op("ReduceMean", _real(b, 0), *given, keepdims=keep), 3)]


def _concat(b: Body, node: ir.Node) -> list[str]:
    parts = [_real(b, k) for k in range(2, len(b.inputs), 3)]
    return [_codes(b, b.op("Concat", *parts, axis=int(_edit.attribute(node, "axis"))), 0, 2)]


def _where(b: Body, _: ir.Node) -> list[str]:
    return [_codes(b, b.op("Where", b.inputs[0], _real(b, 1), _real(b, 4)), 7, 1)]


def _gemm(b: Body, node: ir.Node) -> list[str]:
    """The bias has the scale of the product; without a zero point the result is a number."""
    turned, alpha = int(_edit.attribute(node, "transB", 0)), float(_edit.attribute(node, "alpha", 1.0))
    operands = [_real(b, 0), _real(b, 3, axis=0 if turned else 1)]
    if b.has(6):
        scale = b.op("Mul", b.inputs[1], b.inputs[4])
        scale = scale if alpha == 1 else b.op("Mul", scale, b.number(alpha, scale))
        operands.append(b.op("DequantizeLinear", b.inputs[6], scale, axis=-1))
    y = b.op("Gemm", *operands, alpha=alpha, transA=int(_edit.attribute(node, "transA", 0)), transB=turned)
    return [_codes(b, y, 7) if b.has(8) else y]


def _conversion(op: str) -> Callable[[Body, ir.Node], list[str]]:
    """The standard operator has learnt what the vendor's had before."""
    return lambda b, node: [b.op(op, *_present(list(b.inputs)), axis=int(_edit.attribute(node, "axis", 1)))]


BODIES = {
    (DOMAIN, "DequantizeLinear"): _conversion("DequantizeLinear"),
    (DOMAIN, "QGemm"): _gemm,
    (DOMAIN, "QLinearAdd"): _pair("Add"),
    (DOMAIN, "QLinearAveragePool"): _pool("AveragePool"),
    (DOMAIN, "QLinearConcat"): _concat,
    (DOMAIN, "QLinearGlobalAveragePool"): _pool("GlobalAveragePool"),
    (DOMAIN, "QLinearLeakyRelu"): _leaky_relu,
    (DOMAIN, "QLinearMul"): _pair("Mul"),
    (DOMAIN, "QLinearReduceMean"): _reduce_mean,
    (DOMAIN, "QLinearSigmoid"): _sigmoid,
    (DOMAIN, "QLinearSoftmax"): _softmax,
    (DOMAIN, "QLinearWhere"): _where,
    (DOMAIN, "QuantizeLinear"): _conversion("QuantizeLinear"),
}
