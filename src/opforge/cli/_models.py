"""How commands name nodes and element types."""

from __future__ import annotations

from typing import Any

__all__ = ["dtype_name", "node_kind"]


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
