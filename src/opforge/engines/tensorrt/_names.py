"""How plugins of our operators are called, and TensorRT's names of dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opforge.schema.dtypes import ALL, DType

if TYPE_CHECKING:
    from opforge.schema import Operator

__all__ = [
    "DTYPE_NAMES",
    "INPUTS",
    "OWN_FIELDS",
    "SCHEMA",
    "PluginId",
    "plugin_dtype",
    "plugin_id",
    "quick_id",
    "trt_dtype",
]

INPUTS: Final = "opforge_inputs"
"""Field: tensors per input parameter, e.g. "1 0 1"; TensorRT knows no absent inputs."""

SCHEMA: Final = "opforge_schema"
"""Field of serialised plugins: hash of the declaration, so that an engine meets the one that it was built with."""

OWN_FIELDS: Final = (INPUTS, SCHEMA)

DTYPE_NAMES: Final = {
    "f32": "FLOAT", "f16": "HALF", "bf16": "BF16", "i8": "INT8", "u8": "UINT8", "i32": "INT32", "i64": "INT64",
    "bool": "BOOL",
}  # fmt: skip
"""Our dtypes that TensorRT has too, and its names of them."""


@dataclass(frozen=True)
class PluginId:
    """What TensorRT looks a plugin up by, in ONNX models and in engines."""

    name: str
    version: str
    namespace: str

    def __str__(self) -> str:
        """Write as messages do."""
        return f"{self.name} version {self.version} namespace {self.namespace!r}"


def plugin_id(operator: Operator) -> PluginId:
    """Return the identity of an operator's plugin.

    The parser looks at a node's operator without its domain, and takes one that is called like a standard operator
    (``Mish``) for that; so the name has the domain in it.
    """
    return PluginId(f"{operator.host_namespace}_{operator.name}", str(operator.since_version), operator.domain)


def quick_id(operator: Operator) -> PluginId:
    """Return the identity of an operator's plugin made by decorators, which allow no dots and know one version."""
    name = f"{operator.host_namespace}_{operator.name}_v{operator.since_version}"
    return PluginId(name, "1", operator.host_namespace)


def trt_dtype(trt: Any, dtype: DType) -> Any:  # noqa: ANN401 - modules and enumerators of TensorRT have no types
    """Return TensorRT's element type, or None where it has none."""
    name = DTYPE_NAMES.get(dtype.name)
    return None if name is None else getattr(trt.DataType, name, None)


def plugin_dtype(trt: Any, given: Any) -> DType | None:  # noqa: ANN401
    """Return our dtype of TensorRT's element type, or None where we have none."""
    return next((dtype for dtype in ALL if dtype.name in DTYPE_NAMES and trt_dtype(trt, dtype) == given), None)
