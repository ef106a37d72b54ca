"""Upgrade rules for what changed up to opset 9 (see ``_opset_rules``)."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from opforge.passes import _edit
from opforge.passes._opset_normalization import batch_norm_mode, batch_norm_spatial
from opforge.passes._upgrade import Rule, Writer, constant, dims, drop, rank_of, refuse, set_input, take_attribute

__all__ = ["EARLY"]


def _without(*names: str) -> Rule:
    return lambda node: drop(node, *names)


def _defaults(**values: float | int | str) -> Rule:
    """Write down attributes whose default changed or went."""

    def rule(node: ir.Node) -> None:
        drop(node, "consumed_inputs")
        for name, value in values.items():
            if name not in node.attributes:
                node.attributes[name] = ir.convenience.convert_attribute(name, value)

    return rule


def _broadcast(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 7 the second operand is laid at ``axis`` of the first (by default at its end)."""
    axis = take_attribute(node, "axis")
    if not take_attribute(node, "broadcast", 0) or axis is None:
        return None
    rank, own = rank_of(node, 0), rank_of(node, 1)
    missing = rank - own - (axis + rank if axis < 0 else axis)
    if missing <= 0 or own == 0:
        return None
    write = Writer(node)
    axes = constant(node, np.arange(own, own + missing, dtype=np.int64), "axes")
    node.replace_input_with(1, write.op("Unsqueeze", node.inputs[1], axes))
    return write.nodes()


def _prelu(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 7 a slope with one element per channel needs no further axes."""
    slope = dims(node, 1)
    if slope is None or len(slope) != 1 or slope[0] == 1:
        return None
    missing = rank_of(node, 0) - 2
    if missing <= 0:
        return None
    write = Writer(node)
    axes = constant(node, np.arange(1, 1 + missing, dtype=np.int64), "axes")
    node.replace_input_with(1, write.op("Unsqueeze", node.inputs[1], axes))
    return write.nodes()


def _cast(node: ir.Node) -> None:
    """Before opset 6 the type is a name."""
    name = str(_edit.attribute(node, "to"))
    try:
        number = onnx.TensorProto.DataType.Value(name.upper())
    except ValueError as error:
        raise refuse(node, f"Cast to the unknown type {name!r}") from error
    node.attributes["to"] = ir.AttrInt64("to", number)


def _reshape(node: ir.Node) -> None:
    drop(node, "consumed_inputs")
    set_input(node, 1, np.array(take_attribute(node, "shape", []), np.int64))


def _pad(node: ir.Node) -> None:
    node.attributes["pads"] = ir.AttrInt64s("pads", take_attribute(node, "paddings"))


def _norm_order(node: ir.Node) -> None:
    node.attributes["p"] = ir.AttrInt64("p", int(_edit.attribute(node, "p", 2.0)))


def _tile(node: ir.Node) -> list[ir.Node] | None:
    """Before opset 6 one axis is repeated: repeats are 1 except there."""
    x, tiles, axis = node.inputs
    shape = dims(node)
    count, where = _edit.scalar(tiles), _edit.scalar(axis)
    node.resize_inputs(2)
    if count is not None and where is not None and shape is not None:
        repeats = np.ones(len(shape), np.int64)
        repeats[int(where)] = int(count)
        set_input(node, 1, repeats)
        return None
    write = Writer(node)
    row = constant(node, np.array([-1], np.int64), "row")
    counts = write.op("Reshape", write.op("Cast", tiles, to=7), row)
    values = write.op("Concat", constant(node, np.array([1], np.int64), "one"), counts, axis=0)
    place = write.op("Reshape", write.op("Cast", axis, to=7), row)
    rank = write.op("Size", write.op("Shape", x))
    node.replace_input_with(1, write.op("Reshape", write.op("OneHot", place, rank, values), row))
    return write.nodes()


def _scales(node: ir.Node) -> None:
    """Before opset 7 the images of a batch are scaled by height and width."""
    height, width = take_attribute(node, "height_scale"), take_attribute(node, "width_scale")
    node.attributes["scales"] = ir.AttrFloat32s("scales", [1.0, 1.0, height, width])


def _upsample(node: ir.Node) -> None:
    set_input(node, 1, np.array(take_attribute(node, "scales"), np.float32))


def _direction(node: ir.Node) -> None:
    """The default was misspelt."""
    if _edit.attribute(node, "direction", "foward") == "foward":
        node.attributes["direction"] = ir.AttrString("direction", "forward")


_OVERWRITE = """
    Abs Add Ceil Div Dropout Elu Exp Floor HardSigmoid InstanceNormalization LeakyRelu Log Max Mean Min Mul Neg
    PRelu Reciprocal Relu Sigmoid Sqrt Sub Sum Tanh BatchNormalization
""".split()
"""Operators whose attribute ``consumed_inputs`` said which inputs may be overwritten."""

EARLY: dict[tuple[str, int], Rule] = {
    ("GlobalLpPool", 2): _norm_order,
    ("LpPool", 2): _norm_order,
    ("Pad", 2): _pad,
    ("Split", 2): _defaults(axis=0),
    ("GRU", 3): _direction,
    ("Concat", 4): _defaults(axis=1),
    ("Reshape", 5): _reshape,
    **dict.fromkeys([(name, 6) for name in _OVERWRITE], _without("consumed_inputs")),
    ("Cast", 6): _cast,
    ("Clip", 6): _defaults(min=-np.inf, max=np.inf),
    ("Selu", 6): _defaults(alpha=1.6732, gamma=1.0507),
    ("Tile", 6): _tile,
    **{(name, 7): _broadcast for name in "Add And Div Equal Greater Less Mul Or Pow Sub Xor".split()},
    ("BatchNormalization", 7): batch_norm_mode,
    ("Dropout", 7): _without("is_test"),
    ("Gemm", 7): _without("broadcast"),
    **{(name, 7): _without("output_sequence") for name in ("GRU", "LSTM", "RNN")},
    ("PRelu", 7): _prelu,
    ("Upsample", 7): _scales,
    ("BatchNormalization", 9): batch_norm_spatial,
    ("Upsample", 9): _upsample,
}
