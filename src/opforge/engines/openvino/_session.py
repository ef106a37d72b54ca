"""Models of OpenVINO in which our kernels run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.engines import _nodes
from opforge.engines.openvino._adapter import OLDEST, version, version_numbers
from opforge.engines.openvino._operators import OWN_DOMAINS, Route, attach, ir_operators, onnx_operators
from opforge.engines.openvino._words import load_error
from opforge.errors import MissingOperatorError, OpforgeError, UnsupportedError

if TYPE_CHECKING:
    import onnx
    import openvino

    from opforge.schema import Operator

__all__ = ["import_openvino", "open_model", "read"]


def import_openvino() -> Any:  # noqa: ANN401 - the module
    """Import OpenVINO, or say how to get it, or a newer one."""
    try:
        import openvino
    except ModuleNotFoundError as error:
        if error.name != "openvino":
            raise
        message = "opforge.openvino needs openvino, which is not installed: pip install 'opforge[openvino]'"
        raise ModuleNotFoundError(message, name="openvino") from None
    if version_numbers(version()) < OLDEST:
        raise UnsupportedError(
            "this OpenVINO is too old",
            where="openvino",
            expected=f"{'.'.join(map(str, OLDEST))} or newer",
            got=version(),
            hint="pip install --upgrade openvino",
        )
    return openvino


def read(
    model: str | Path | onnx.ModelProto, core: openvino.Core, *, bodies: bool = False, route: Route = "auto"
) -> openvino.Model:
    """Read an ONNX model or an IR with nodes of ours; the Core is told of the operators that it uses.

    Args:
        model: an ONNX model, its file, or the .xml of an IR.
        core: of OpenVINO.
        bodies: whether a node whose function body the model carries runs as that body.
        route: see `attach`.

    Raises:
        MissingOperatorError: nodes have neither a registered operator nor a body.
        ArgumentError: nodes do not fit their operators: attributes, numbers of inputs, shapes.
        UnsupportedError: OpenVINO refuses the model; its words are under ``got``.
    """
    path = Path(model) if isinstance(model, str | Path) else None
    if path is not None and path.suffix == ".xml":
        attach(core, ir_operators(path), route)
        return _read(core, str(path), str(path))
    from opforge.onnx._read import read_model

    where = "model" if path is None else str(path)
    proto = read_model(path, weights=False) if path is not None else model
    assert not isinstance(proto, str | Path)
    missing = _nodes.check_nodes(proto, where, OWN_DOMAINS)
    held = {(function.domain, function.name) for function in proto.functions}
    used = [o for o in onnx_operators(proto) if not (bodies and (o.domain, o.name) in held)]
    attach(core, used, route)
    try:
        if path is not None and not held:
            return _read(core, str(path), where)
        return _read_proto(core, _plain(read_model(path) if path is not None else proto, used), where)
    except MissingOperatorError as problem:
        raise missing or problem from problem


def _plain(model: onnx.ModelProto, used: list[Operator]) -> onnx.ModelProto:
    """Copy a model without functions: those of operators that run by kernels go, others are put in their calls' places.

    OpenVINO's front end reads no functions.
    """
    import onnx

    from opforge.onnx.inline import inline_functions

    if not model.functions:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = _nodes.kept_functions(copy, [(o.domain, o.name) for o in used])
    del copy.functions[:]
    copy.functions.extend(kept)
    return inline_functions(copy) if kept else copy


def _read_proto(core: openvino.Core, model: onnx.ModelProto, where: str) -> openvino.Model:
    from opforge.onnx._write import fits_one_message, write_model

    if fits_one_message(model):
        return _read(core, model.SerializeToString(), where)
    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:  # open files outlive their names
        write_model(model, Path(folder) / "model.onnx")
        return _read(core, f"{folder}/model.onnx", where)


def _read(core: openvino.Core, source: str | bytes, where: str) -> openvino.Model:
    try:
        return core.read_model(source)
    except OpforgeError:
        raise
    except Exception as problem:
        raise load_error(problem, where) from problem


def open_model(
    model: str | Path | onnx.ModelProto | openvino.Model,
    *,
    device: str = "CPU",
    config: Mapping[str, Any] | None = None,
    core: openvino.Core | None = None,
    bodies: bool = False,
    route: Route = "auto",
) -> openvino.CompiledModel:
    """Compile a model in which nodes of ours run by our kernels; see `opforge.openvino.session`."""
    openvino = import_openvino()
    core = core or openvino.Core()
    made = model if isinstance(model, openvino.Model) else read(model, core, bodies=bodies, route=route)
    where = str(model) if isinstance(model, str | Path) else "model"
    try:
        return core.compile_model(made, device, dict(config or {}))
    except Exception as problem:
        raise load_error(problem, where) from problem
