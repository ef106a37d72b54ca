"""opforge: the whole life of a deep-learning custom operator.

Declare it once; train with it in PyTorch; export it to ONNX; compile the model to one ``.bin``; run that
anywhere; know that every step computes the same numbers. All names load lazily, so that ``import opforge``
brings in no framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what decorates a user's functions keeps its type in their checkers
    from opforge.expr.declare import formula as formula
    from opforge.expr.kernels import kernel as kernel
    from opforge.schema import Operator as Operator

__version__ = "0.1.0"

# Public name -> module that defines it. Submodules are names of their own.
_NAMES = {
    **dict.fromkeys(("formula", "kernel"), "opforge.expr"),
    **dict.fromkeys(
        ("f16", "bf16", "f32", "f64", "i8", "u8", "i32", "i64", "bool_", "floating", "index"), "opforge.schema"
    ),
    **dict.fromkeys(("load", "operators", "Operator"), "opforge.schema"),
    **dict.fromkeys(("compile", "CompileReport"), "opforge.bin.compiler"),
    "Session": "opforge.bin.session",
    **dict.fromkeys(("compare", "Comparison", "check", "CheckReport"), "opforge.verify"),
    **dict.fromkeys(("profile", "Profile"), "opforge.profiling"),
    **dict.fromkeys(("cmake_dir", "include_dir", "library_dir"), "opforge._paths"),
}
# Elementwise functions for formulas, all from opforge.expr.
_FUNCTIONS = (
    "abs acos acosh asin asinh atan atan2 atanh cast cbrt ceil clip cos cosh e erf erfc exp exp2 expm1 floor fmod inf "
    "isinf isnan log log10 log1p log2 logical_and logical_not logical_or logical_xor maximum minimum mod pi pow "
    "reciprocal relu round rsqrt sigmoid sign sin sinh softplus sqrt square tan tanh trunc where"
).split()
_NAMES.update(dict.fromkeys(_FUNCTIONS, "opforge.expr"))
_SUBMODULES = tuple(
    "executorch jax litert monitor ncnn onnx onnxruntime openvino ops pipeline tensorflow tensorrt torch".split()
)
_NEEDED = {"executorch": "torch"}  # what a submodule imports that is named otherwise

__all__ = ["__version__", *sorted(_NAMES), *_SUBMODULES]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a lazy module attribute can be anything
    if name in _NAMES:
        value = getattr(import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        try:
            return import_module(f"opforge.{name}")
        except ModuleNotFoundError as error:
            if error.name not in (name, _NEEDED.get(name)):
                raise
            message = f"opforge.{name} needs {error.name}, which is not installed: pip install 'opforge[{name}]'"
            raise ModuleNotFoundError(message, name=error.name) from None
    raise AttributeError(f"module 'opforge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
