"""Our declarations as ONNX operator schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opforge.schema import DType, Operator, Required

if TYPE_CHECKING:
    from onnx import defs

__all__ = ["onnx_schema", "tensor_type"]

_TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float",
    "f64": "double",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "u16": "uint16",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
    "bool": "bool",
}


def tensor_type(dtype: DType) -> str:
    """Return ONNX's type text, e.g. ``tensor(float)``."""
    return f"tensor({_TYPES[dtype.name]})"


def onnx_schema(operator: Operator) -> defs.OpSchema:
    """Return the schema of ``operator`` without registering it anywhere."""
    from onnx import defs

    option = defs.OpSchema.FormalParameterOption

    def parameter(entry: Any) -> defs.OpSchema.FormalParameter:  # noqa: ANN401
        kind = option.Variadic if entry.variadic else option.Optional if entry.optional else option.Single
        name = entry.type if entry.type in operator.types else tensor_type(DType.parse(entry.type))
        return defs.OpSchema.FormalParameter(entry.name, name, param_option=kind)

    kinds = defs.OpSchema.AttrType
    codes = {
        "int": kinds.INT,
        "bool": kinds.INT,
        "float": kinds.FLOAT,
        "string": kinds.STRING,
        "ints": kinds.INTS,
        "bools": kinds.INTS,
        "floats": kinds.FLOATS,
        "strings": kinds.STRINGS,
    }
    attributes = [
        defs.OpSchema.Attribute(a.name, codes[a.kind], required=isinstance(a.default, Required))
        for a in operator.signature.attributes
    ]
    return defs.OpSchema(
        operator.name,
        operator.domain,
        operator.since_version,
        inputs=[parameter(p) for p in operator.signature.inputs],
        outputs=[parameter(p) for p in operator.signature.outputs],
        type_constraints=[(name, [tensor_type(d) for d in dtypes], "") for name, dtypes in operator.types.items()],
        attributes=attributes,
    )
