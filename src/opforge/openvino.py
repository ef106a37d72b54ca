"""OpenVINO: what a user reaches as ``opforge.openvino``.

``session(model)`` compiles a model in which our kernels compute our nodes. ``add_to(core)`` is for those who read and
compile models themselves; ``library()`` is the file for ``core.add_extension`` and for ``ovc --extension``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.engines.openvino import _operators
from opforge.engines.openvino._adapter import build_adapter
from opforge.engines.openvino._operators import Route
from opforge.engines.openvino._session import import_openvino, open_model, read

if TYPE_CHECKING:
    import onnx
    import openvino

    from opforge.schema import Operator

__all__ = ["Route", "add_to", "build_adapter", "library", "read_model", "session"]


def session(
    model: str | Path | onnx.ModelProto | openvino.Model,
    *,
    device: str = "CPU",
    config: Mapping[str, Any] | None = None,
    core: openvino.Core | None = None,
    bodies: bool = False,
    route: Route = "auto",
) -> openvino.CompiledModel:
    """Compile a model that OpenVINO runs with our kernels for our nodes.

    Args:
        model: an ONNX model, its file, the .xml of an IR, or a model that was read already.
        device: of OpenVINO; our kernels run on the CPU.
        config: properties of OpenVINO.
        core: of OpenVINO; None = a new one.
        bodies: whether a node whose function body the model carries runs as that body; its kernel runs otherwise.
        route: "adapter" (compiled for this OpenVINO), "python" (some 100 us a node), or "auto": the adapter where
            there is one or a compiler to build it.

    Raises:
        MissingOperatorError: nodes have neither a registered operator nor a body.
        ArgumentError: nodes do not fit their operators: attributes, numbers of inputs, shapes.
        UnsupportedError: OpenVINO refuses the model (its words are under ``got``), or has no kernel for a dtype.
        ToolchainError: route="adapter", or a kernel operator has to be compiled, and there is no compiler.
    """
    return open_model(model, device=device, config=config, core=core, bodies=bodies, route=route)


def read_model(
    model: str | Path | onnx.ModelProto,
    core: openvino.Core | None = None,
    *,
    bodies: bool = False,
    route: Route = "auto",
) -> openvino.Model:
    """Read an ONNX model or an IR with nodes of ours, for ``openvino.save_model`` or to compile it yourself.

    Raises:
        MissingOperatorError: nodes have neither a registered operator nor a body.
        ArgumentError: nodes do not fit their operators.
        UnsupportedError: OpenVINO refuses the model.
    """
    return read(model, core or import_openvino().Core(), bodies=bodies, route=route)


def add_to(
    core: openvino.Core,
    *operators: Operator,
    model: str | Path | onnx.ModelProto | None = None,
    route: Route = "auto",
) -> None:
    """Make a Core know operators, in ONNX models and in IRs.

    Args:
        core: of OpenVINO.
        *operators: the operators; none = those of ``model``, or every registered one in its newest version.
        model: take the operators, in the versions, that this model uses.
        route: as `session` says.
    """
    _operators.attach(core, _chosen(operators, model), route)


def library(*operators: Operator, model: str | Path | onnx.ModelProto | None = None) -> str:
    """Build the adapter for this OpenVINO, make operators known to it, and return its file.

    ``core.add_extension(path)`` or ``openvino.convert_model(extension=path)`` on this thread then takes these
    operators. In a process without opforge (``ovc --extension``, C++) the file finds kernel libraries in the folders
    of ``OPFORGE_LIBRARY_PATH``.

    Args:
        *operators: as `add_to` says.
        model: as `add_to` says.

    Raises:
        ToolchainError: there is no C++ compiler.
    """
    import_openvino()
    return str(_operators.library(_chosen(operators, model)))


def _chosen(operators: tuple[Operator, ...], model: str | Path | onnx.ModelProto | None) -> list[Operator]:
    from opforge.onnx._read import read_model as read_onnx
    from opforge.schema import discover, registry

    found = list(operators)
    if model is not None:
        if isinstance(model, str | Path) and Path(model).suffix == ".xml":
            return [*found, *_operators.ir_operators(Path(model))]
        proto = read_onnx(Path(model), weights=False) if isinstance(model, str | Path) else model
        return [*found, *_operators.onnx_operators(proto)]
    if found:
        return found
    discover()
    return list(registry.operators().values())
