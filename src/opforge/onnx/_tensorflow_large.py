"""TensorFlow models whose weights do not fit into one protobuf message (2 GiB): weights go around the converter.

tf2onnx gets a graph in which large constants are inputs; they become tensors in a file beside the model afterwards,
so that no message ever holds them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opforge.onnx._write import write_with_data
from opforge.schema import DType

if TYPE_CHECKING:
    import onnx

__all__ = ["LARGE", "Weight", "attach", "freeze", "weight_bytes"]

LARGE: Final = 2**31 - 2**27
"""Bytes of weights above which a model goes this way; the graph around them needs room too."""

_KEPT: Final = 2**16
"""Constants of fewer bytes stay in the graph, where the converter looks for shapes and small tables."""


@dataclass(frozen=True)
class Weight:
    """A constant that the converter does not see."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes


def weight_bytes(concrete: Any) -> int:  # noqa: ANN401 - a ConcreteFunction
    """How many bytes of variables and captured constants a traced function holds."""
    captured = [t for t in concrete.captured_inputs if t.dtype.name not in ("resource", "variant", "string")]
    return sum((t.shape.num_elements() or 0) * t.dtype.size for t in (*concrete.variables, *captured))


def freeze(concrete: Any, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[Any, dict[str, Weight]]:  # noqa: ANN401
    """Return the graph of a traced function with inputs in the place of large constants, and these by node name."""
    import tensorflow as tf
    from tf2onnx import tf_loader

    graph = tf_loader.from_function(concrete, list(inputs), list(outputs), large_model=True)
    weights: dict[str, Weight] = {}
    for node in graph.node:
        if node.op != "Const" or len(node.attr["value"].tensor.tensor_content) < _KEPT:
            continue
        tensor = node.attr["value"].tensor
        shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
        dtype = DType.parse(tf.as_dtype(tensor.dtype).as_numpy_dtype)
        weights[node.name] = Weight(dtype, shape, tensor.tensor_content)
        kept = tensor.tensor_shape, tensor.dtype
        node.op = "Placeholder"
        described = type(node)(op="Placeholder")
        described.attr["dtype"].type = kept[1]
        described.attr["shape"].shape.CopyFrom(kept[0])
        node.ClearField("attr")
        for name, value in described.attr.items():
            node.attr[name].CopyFrom(value)
    return graph, weights


def attach(model: onnx.ModelProto, weights: Mapping[str, Weight], path: Path) -> None:
    """Make tensors of the inputs that stand for weights, in place, and write the model with its file of data."""
    names = {name if name in weights else name.rpartition(":")[0]: name for name in (i.name for i in model.graph.input)}
    tensors = {names[name]: weight for name, weight in weights.items() if name in names}
    kept = [item for item in model.graph.input if item.name not in tensors]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for name, weight in tensors.items():
        model.graph.initializer.add(name=name, data_type=weight.dtype.onnx, dims=weight.shape)
    write_with_data(model, path, {name: weight.data for name, weight in tensors.items()})
