"""TensorFlow: what a user reaches as ``opforge.tensorflow``.

Operators take TensorFlow's tensors and variables by themselves. ``Layer(op)`` is a Keras layer, ``save`` and ``load``
are SavedModels with the manifest of the operators that they need, ``decomposed()`` traces formulas for XLA,
``export`` writes ONNX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opforge.frameworks.tensorflow import decomposing as decomposed
from opforge.frameworks.tensorflow import function, register, register_library, tensorflow_name

if TYPE_CHECKING:
    from opforge.frameworks.tensorflow._layer import Layer as Layer
    from opforge.frameworks.tensorflow._saved import load as load
    from opforge.frameworks.tensorflow._saved import save as save
    from opforge.frameworks.tensorflow._saved import write_manifest as write_manifest
    from opforge.onnx.export_tensorflow import export as export

__all__ = [
    "Layer",
    "decomposed",
    "export",
    "function",
    "load",
    "register",
    "register_library",
    "save",
    "tensorflow_name",
    "write_manifest",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a lazy module attribute can be anything
    if name in ("Layer", "load", "save", "write_manifest"):
        from opforge.frameworks.tensorflow import _layer, _saved

        value = _layer.Layer if name == "Layer" else getattr(_saved, name)
        globals()[name] = value
        return value
    if name == "export":
        from opforge.onnx.export_tensorflow import export

        globals()["export"] = export
        return export
    raise AttributeError(f"module 'opforge.tensorflow' has no attribute {name!r}")
