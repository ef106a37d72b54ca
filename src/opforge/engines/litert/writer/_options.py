"""The custom options of a node of ours: a FlexBuffer, read by ``adapters/litert/flexbuffer.h``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opforge.schema import Signature

__all__ = ["encode"]


def encode(signature: Signature, attributes: Mapping[str, Any], counts: Sequence[int]) -> bytes:
    """Write a map: each attribute by its name, and ``#inputs``, the number of tensors of each input parameter.

    Args:
        signature: of the operator.
        attributes: all of them, with values as the declaration coerces them.
        counts: tensors per input parameter; left out where every parameter is one tensor.
    """
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    with builder.Map():
        if any(p.optional or p.variadic for p in signature.inputs):
            with builder.Vector("#inputs"):
                for count in counts:
                    builder.Int(count)
        for attribute in signature.attributes:
            value = attributes[attribute.name]
            if attribute.kind.endswith("s"):
                with builder.Vector(attribute.name):
                    for item in value:
                        _write(builder, attribute.kind[:-1], item)
            else:
                builder.Key(attribute.name)
                _write(builder, attribute.kind, value)
    return bytes(builder.Finish())


def _write(builder: Any, kind: str, value: Any) -> None:  # noqa: ANN401 - a builder, and what the kind says
    if kind == "float":
        builder.Float(float(value))
    elif kind == "bool":
        builder.Bool(bool(value))
    elif kind == "int":
        builder.Int(int(value))
    else:
        builder.String(value)
