"""How commands name models, nodes and element types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opforge.errors import ArgumentError

__all__ = ["dtype_name", "node_kind", "require_model"]


def require_model(path: Path) -> None:
    """Raise ArgumentError unless there is a file of that name."""
    if not path.is_file():
        got = "a folder" if path.is_dir() else None
        raise ArgumentError("there is no such model", where=str(path), expected="a file", got=got)


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
