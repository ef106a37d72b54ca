"""PyTorch: what a user reaches as ``opforge.torch``.

``register(op)`` makes an operator known as ``torch.ops.<domain>.<name>`` (a first call does it too), ``Module(op)``
is a layer, ``route()`` says which adapter this process uses, ``options`` holds the switches, and ``export`` writes
ONNX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opforge.frameworks.torch import Module, Options, build_accelerator, options, register, register_library, route

if TYPE_CHECKING:
    from opforge.onnx.export_torch import export as export

__all__ = ["Module", "Options", "build_accelerator", "export", "options", "register", "register_library", "route"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a lazy module attribute can be anything
    if name == "export":
        from opforge.onnx.export_torch import export

        globals()["export"] = export
        return export
    raise AttributeError(f"module 'opforge.torch' has no attribute {name!r}")
