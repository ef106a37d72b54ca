"""Sessions of ONNX Runtime in which our kernels run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from opforge.build.device import Device
from opforge.engines.onnxruntime._adapter import adapter, adapter_path
from opforge.engines.onnxruntime._devices import (
    RECORD_SINCE,
    check_placement,
    check_started,
    chosen_providers,
    device_of,
)
from opforge.engines.onnxruntime._operators import adapted, check_nodes, has_gaps, model_operators
from opforge.engines.onnxruntime._provider import RECORD, add_provider
from opforge.errors import ArgumentError, MissingOperatorError, OpforgeError, UnsupportedError
from opforge.onnx._read import read_model
from opforge.schema import Operator, discover, registry

if TYPE_CHECKING:
    import onnx
    import onnxruntime

__all__ = ["library", "open_session", "register", "version"]

_EXTERNAL = "session.model_external_initializers_file_folder_path"
_EXTERNAL_SINCE = (1, 21)


def library(
    *operators: Operator,
    model: str | Path | onnx.ModelProto | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
) -> str:
    """Make operators known, and return the file for ``SessionOptions.register_custom_ops_library``.

    The next registration on this thread takes exactly these operators, later ones take the newest version of every
    operator that was made known in this process.

    Args:
        *operators: those that the session needs; none = every registered operator, or those of ``model``.
        model: take the operators, in the versions, that this model uses.
        device: "cuda" has kernels for ONNX Runtime's CUDA provider too; those for the CPU are always there.

    Raises:
        ToolchainError: kernels have to be compiled, and there is no compiler.
    """
    if model is not None:
        proto = read_model(Path(model), weights=False) if isinstance(model, str | Path) else model
        operators = (*operators, *model_operators(proto).values())
    if not operators:
        discover()
        operators = tuple(registry.operators().values())
    adapter().select(adapter().define_all(operators, None if device == "cpu" else device))
    return str(adapter_path())


def open_session(
    model: str | Path | onnx.ModelProto,
    options: onnxruntime.SessionOptions | None = None,
    *,
    device: Literal["cpu", "cuda"] | None = None,
    providers: Sequence[Any] | None = None,
    bodies: bool = False,
    provider: bool = False,
    programs: Path | None = None,
) -> onnxruntime.InferenceSession:
    """Create a session of ONNX Runtime that computes the model's nodes of ours by our kernels.

    Args:
        model: an ONNX model or its file.
        options: of the session; the kernels are registered with them.
        device: chooses the providers: "cpu" (default), or "cuda" with the CPU's behind it.
        providers: execution providers of ONNX Runtime in place of these; with CUDA's our kernels run there.
        bodies: whether a node whose function body the model carries runs as that body.
        provider: whether our execution provider claims the nodes.
        programs: a folder of compiled parts, which the provider claims first.

    Raises:
        MissingOperatorError: nodes have neither a registered operator nor a body.
        ArgumentError: nodes do not fit their operators: attributes, numbers of inputs, dtypes.
        UnsupportedError: ONNX Runtime refuses the model (its words are under ``got``), has no CUDA, or would run
            nodes of ours on the CPU although CUDA's provider was asked for.
        ToolchainError: kernels for the device are neither built ahead nor can be built here.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise
        message = "opforge.onnxruntime needs onnxruntime, which is not installed: pip install 'opforge[onnxruntime]'"
        raise ModuleNotFoundError(message, name="onnxruntime") from None

    if provider and (device is not None or providers is not None or bodies):
        given = "device=" if device is not None else "providers=" if providers is not None else "bodies=True"
        raise ArgumentError("provider=True chooses who runs what itself", where="session", got=given)
    named = chosen_providers(device, providers)
    beside = device_of(named)
    chosen: list[Any] | None = named
    path = Path(model) if isinstance(model, str | Path) else None
    where = "model" if path is None else str(path)
    proto = read_model(path, weights=False) if path is not None else model
    assert not isinstance(proto, str | Path)
    missing = check_nodes(proto, where)
    held = {(function.domain, function.name) for function in proto.functions}
    used = {kind: operator for kind, operator in model_operators(proto).items() if not (bodies and kind in held)}
    if options is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
    if used:
        register(options, used.values(), beside)
    source: str | bytes
    if path is not None and not held & set(used) and not has_gaps(proto, used):
        source = str(path)
    else:
        source = adapted(_with_tensors(proto, path, options), used).SerializeToString()
    recorded = beside is not None and version() >= RECORD_SINCE
    if recorded:
        options.add_session_config_entry(RECORD, "1")
    if provider:
        add_provider(options, programs)
        chosen = None
    try:
        session = _create(source, options, chosen, where)
    except MissingOperatorError as problem:
        raise missing or problem from problem
    if beside is not None:
        check_started(session, where)
    if recorded:
        check_placement(session, used, where)
    return session


def _with_tensors(model: onnx.ModelProto, path: Path | None, options: onnxruntime.SessionOptions) -> onnx.ModelProto:
    """Say where tensors in files beside the model lie; an older ONNX Runtime cannot be told, so they are read."""
    from onnx.external_data_helper import uses_external_data

    if path is None or not any(uses_external_data(tensor) for tensor in model.graph.initializer):
        return model
    if version() < _EXTERNAL_SINCE:
        return read_model(path)
    options.add_session_config_entry(_EXTERNAL, str(path.resolve().parent))
    return model


def version() -> tuple[int, ...]:
    """Return the version of ONNX Runtime that is imported, as (major, minor)."""
    import onnxruntime

    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])


def register(options: onnxruntime.SessionOptions, operators: Iterable[Operator], device: Device | None = None) -> None:
    """Register the kernels of operators with session options, those for a device beside the CPU's."""
    path = library(*operators, device=device or "cpu")
    try:
        options.register_custom_ops_library(path)
    except Exception as problem:
        raise UnsupportedError(
            "ONNX Runtime refuses the library of operators", where=path, got=str(problem)
        ) from problem


def _create(
    source: str | bytes, options: onnxruntime.SessionOptions, providers: list[Any] | None, where: str
) -> onnxruntime.InferenceSession:
    import onnxruntime

    try:
        # Without the last word a failure would be tried again without the providers asked for.
        return onnxruntime.InferenceSession(source, options, providers=providers, enable_fallback=0)
    except OpforgeError:
        raise
    except Exception as problem:
        text = str(problem)
        if "not a registered function/op" in text or "No Op registered" in text:
            raise MissingOperatorError(
                "ONNX Runtime does not know an operator of this model",
                where=where,
                got=text,
                hint="formula operators bring a body when exported; the engine `reference` needs none",
            ) from problem
        if "wrong attribute type" in text or ("dimension" in text and "expected:" in text):
            raise ArgumentError("a node does not fit its operator", where=where, got=text) from problem
        raise UnsupportedError("ONNX Runtime cannot load this model", where=where, got=text) from problem
