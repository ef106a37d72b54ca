"""Operators of ours in a Core of OpenVINO: by the native adapter, or through Python where none can be built."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from opforge.build.jit import jit_mode
from opforge.engines import _nodes
from opforge.engines.openvino._adapter import adapter, built_adapter
from opforge.errors import ArgumentError, BuildError, ToolchainError, UnsupportedError
from opforge.schema import Operator, discover, registry

if TYPE_CHECKING:
    import onnx
    import openvino

__all__ = ["Route", "attach", "ir_operators", "library", "onnx_operators", "python_reason"]

Route = Literal["auto", "adapter", "python"]

OWN_DOMAINS = ("com.microsoft", "org.openvinotoolkit")
"""Domains of which OpenVINO's front end knows operators."""

_LAYER = re.compile(r'<layer\b[^>]*?\btype="([^":]+)::([^":]+)"[^>]*?\bversion="opforge:(\d+)"')


def onnx_operators(model: onnx.ModelProto) -> list[Operator]:
    """Return the registered operators that the model's nodes call, one version of each.

    Raises:
        UnsupportedError: the graph and a function of the model import two versions of one.
    """
    return list(_nodes.model_operators(model, "OpenVINO").values())


def ir_operators(path: Path) -> list[Operator]:
    """Return the registered operators that layers of an IR (.xml) name."""
    layers = _LAYER.findall(Path(path).read_text(encoding="utf-8", errors="replace"))
    if layers:
        discover()
    found = {
        (o.key): o
        for domain, name, since in layers
        if (o := registry.find(domain, name, int(since))) is not None and o.since_version == int(since)
    }
    return list(found.values())


def library(operators: Iterable[Operator]) -> Path:
    """Make operators known to the adapter, and return the file for ``Core.add_extension``.

    The next extension that is made on this thread holds exactly these operators.

    Raises:
        ToolchainError: there is no C++ compiler, for the adapter or for a kernel operator.
    """
    path, table = adapter()
    table.select(table.define_all(operators))
    return path


def python_reason() -> str | None:
    """Say why our kernels run through Python here, or None where the adapter is there or can be built."""
    from opforge.build.toolchain import find_compiler

    try:
        if built_adapter() is not None:
            return None
        if jit_mode() == "off":
            return "OPFORGE_JIT=off forbids to build the adapter"
        find_compiler()
    except ToolchainError:
        return "there is no C++ compiler to build the adapter"
    except UnsupportedError as error:
        return error.what
    return None


def attach(core: openvino.Core, operators: Sequence[Operator], route: Route = "auto") -> None:
    """Make a Core know operators.

    Args:
        core: of OpenVINO.
        operators: the operators; of several versions of one, an ONNX model gets the first.
        route: "adapter" (compiled), "python" (some 100 us a node), or "auto": the first where it can be had.

    Raises:
        ToolchainError: route="adapter", and there is no C++ compiler; or a kernel operator has no library.
        BuildError: route="adapter", and the compiler refuses the adapter.
    """
    if route not in ("auto", "adapter", "python"):
        raise ArgumentError("unknown route", where="add_to", expected="auto, adapter or python", got=repr(route))
    if not operators:
        return
    reason = python_reason() if route == "auto" else None
    if route != "python" and reason is None:
        try:
            adapter()
        except BuildError as error:
            if route == "adapter":
                raise
            reason = str(error)
        else:
            core.add_extension(str(library(operators)))
            return
    if reason is not None:
        text = f"operators of opforge run through Python in OpenVINO, some 100 us a node: {reason}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    from opforge.engines.openvino._python import add_operators

    add_operators(core, operators)
