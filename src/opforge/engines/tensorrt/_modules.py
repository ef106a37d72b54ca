"""TensorRT's Python package: imported when somebody uses it, with a word on how to get it where it is not there."""

from __future__ import annotations

from importlib import import_module, metadata, util
from typing import Any, Final

from opforge.errors import UnsupportedError

__all__ = ["HINT", "OLDEST", "import_plugin", "import_tensorrt", "version", "version_numbers"]

OLDEST: Final = (10, 0)
"""The first version with ``IPluginV3``."""

HINT: Final = (
    "pip install tensorrt (its libraries come from NVIDIA's own index), or NVIDIA's packages for your system; "
    "a GPU and its driver are needed too"
)


def version() -> str | None:
    """Return the version of the installed package without importing it; None where it is not installed."""
    if util.find_spec("tensorrt") is None:
        return None
    for name in ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def version_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def import_tensorrt() -> Any:  # noqa: ANN401 - the module
    """Import TensorRT.

    Raises:
        ModuleNotFoundError: it is not installed, or its libraries are not.
        UnsupportedError: it is too old.
    """
    try:
        found = import_module("tensorrt")
    except ImportError as error:
        message = f"opforge.tensorrt needs tensorrt, which does not import ({error}): {HINT}"
        raise ModuleNotFoundError(message, name="tensorrt") from None
    given = str(getattr(found, "__version__", ""))
    if not hasattr(found, "IPluginV3"):
        raise UnsupportedError(
            "this TensorRT is too old",
            where="tensorrt",
            expected=f"{'.'.join(map(str, OLDEST))} or newer, which has IPluginV3",
            got=given,
            hint="pip install --upgrade tensorrt",
        )
    return found


def import_plugin(trt: Any) -> Any:  # noqa: ANN401
    """Import ``tensorrt.plugin``, the decorators.

    Raises:
        UnsupportedError: this version has none, or none for kernels that are compiled ahead.
    """
    try:
        found = import_module(f"{trt.__name__}.plugin")
    except ImportError:
        found = None
    if found is None or not hasattr(found, "aot_impl"):
        raise UnsupportedError(
            "this TensorRT has no plugins by decorators with compiled kernels",
            where="tensorrt.plugin",
            expected="tensorrt.plugin.aot_impl",
            got=str(getattr(trt, "__version__", "")),
            hint="pip install --upgrade tensorrt",
        )
    return found
