"""Reading ONNX files for commands, and how nodes and values are shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.errors import ArgumentError

if TYPE_CHECKING:
    import onnx

__all__ = ["dtype_name", "load_onnx", "node_kind"]


def load_onnx(path: Path, *, weights: bool = True) -> onnx.ModelProto:
    """Read a model; a file that is none is an error that says so.

    Args:
        path: the file.
        weights: also read tensors that lie in other files.
    """
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=weights)
    except OSError as problem:
        raise ArgumentError("a file of this model cannot be read", where=str(path), got=str(problem)) from None
    except Exception as problem:  # protobuf's and onnx's own kinds
        got = f"{type(problem).__name__}: {problem}"
        raise ArgumentError("not an ONNX model", where=str(path), expected="a protobuf file", got=got) from None
    if not model.HasField("graph"):
        raise ArgumentError("not an ONNX model", where=str(path), expected="a model with a graph", got="no graph")
    return model


def node_kind(node: Any) -> str:  # noqa: ANN401 - an ONNX node, or one of a program
    """``domain::Name``, or the name alone in the default domain."""
    name = getattr(node, "op_type", None) or node.op
    return f"{node.domain}::{name}" if node.domain else str(name)


def dtype_name(code: int) -> str:
    """Name an ONNX element type as opforge does: f32, i64, bool, ..."""
    import onnx

    from opforge.schema.dtypes import ALL

    names = {dtype.onnx: dtype.name for dtype in ALL}
    return names.get(code) or str(onnx.TensorProto.DataType.Name(code)).lower()
