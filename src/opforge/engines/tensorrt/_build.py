"""From an ONNX model to an engine of TensorRT."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from opforge._files import whole_file
from opforge.engines.tensorrt import _failures
from opforge.engines.tensorrt._modules import import_tensorrt
from opforge.engines.tensorrt._prepare import Route, prepare, read
from opforge.engines.tensorrt._register import register
from opforge.errors import ArgumentError, OpforgeError, UnsupportedError
from opforge.onnx._walk import nodes
from opforge.schema import Operator, discover, registry

if TYPE_CHECKING:
    import onnx

__all__ = ["Log", "Precision", "Profile", "build", "sized", "used_operators"]

Precision = Literal["model", "f16", "bf16"]
"""Element types that TensorRT may compute in: those of the model, or also a shorter one."""

Profile = Mapping[str, tuple[Sequence[int], Sequence[int], Sequence[int]]]
"""Input name -> smallest, usual and largest shape."""

_FLAGS: Final[Mapping[str, str]] = {"model": "", "f16": "FP16", "bf16": "BF16"}


def used_operators(model: onnx.ModelProto) -> list[Operator]:
    """Return the registered operators whose plugins a prepared model names."""
    discover()
    by_name = {
        (operator.domain, f"{operator.host_namespace}_{operator.name}", str(operator.since_version)): operator
        for operator in registry.operators(all_versions=True).values()
    }
    found: dict[str, Operator] = {}
    for place in nodes(model):
        texts = {a.name: a.s.decode() for a in place.node.attribute if a.name == "plugin_version"}
        operator = by_name.get((place.node.domain, place.node.op_type, texts.get("plugin_version", "")))
        if operator is not None:
            found[operator.key] = operator
    return list(found.values())


def build(
    model: str | os.PathLike[str] | onnx.ModelProto,
    path: str | os.PathLike[str] | None = None,
    *,
    precision: Precision = "model",
    profiles: Profile | Sequence[Profile] = (),
    workspace: int | None = None,
    route: Route = "auto",
    outputs: Sequence[str] = (),
) -> bytes:
    """Build an engine for the GPU of this machine, and write it.

    Args:
        model: the model, or its file.
        path: of the engine's file.
        precision: "model" keeps the model's element types; "f16" and "bf16" let TensorRT choose these too, which
            versions from 11 do not offer.
        profiles: for inputs with open sizes, their smallest, usual and largest shape; one profile or several.
        workspace: bytes of memory that layers may use while they run; None = TensorRT's own limit.
        route: as of `prepare`.
        outputs: further values of the graph to make outputs, to see what a node in the middle computes.

    Raises:
        MissingOperatorError: nodes have neither a body nor a plugin.
        ArgumentError: a profile is missing or does not fit.
        UnsupportedError: TensorRT refuses the model; its words are under ``got``.
        ModuleNotFoundError: TensorRT is not installed.
    """
    trt = import_tensorrt()
    if isinstance(model, str | os.PathLike):
        model = Path(model)
    if precision not in _FLAGS:
        raise ArgumentError("unknown precision", where="build", expected=", ".join(_FLAGS), got=repr(precision))
    prepared = prepare(model, route=route)
    if operators := used_operators(prepared):
        register(trt, operators)
    where = str(model) if isinstance(model, Path) else "model"
    _failures.forget()
    log = Log(trt)
    builder = trt.Builder(log.logger)
    network = builder.create_network(_network_flags(trt, precision))
    parser = trt.OnnxParser(network, log.logger)
    if not parser.parse(prepared.SerializeToString()):
        words = [str(parser.get_error(k)) for k in range(parser.num_errors)]
        raise _failure("TensorRT's parser refuses the model", where, words or log.lines)
    _mark(network, outputs, where)
    config = builder.create_builder_config()
    if workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace)
    if _FLAGS[precision]:
        config.set_flag(_flag(trt, precision))
    for profile in _profiles(network, profiles, where):
        config.add_optimization_profile(_optimization(builder, profile))
    made = builder.build_serialized_network(network, config)
    if made is None:
        raise _failure("TensorRT cannot build an engine of the model", where, log.lines)
    engine = bytes(made)
    if path is not None:
        with whole_file(Path(path)) as temporary:
            temporary.write_bytes(engine)
    return engine


def sized(model: str | Path | onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """Return a copy whose inputs have numbers for these named dimensions."""
    import onnx

    proto, _ = read(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for value in copy.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return copy


class Log:
    """A logger that keeps warnings and errors."""

    def __init__(self, trt: Any) -> None:  # noqa: ANN401
        lines: list[str] = []

        class Logger(trt.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, text: str) -> None:  # noqa: ANN401
                if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                    lines.append(text)

        self.lines = lines
        self.logger = Logger()


def _failure(what: str, where: str, words: Sequence[str]) -> OpforgeError:
    """Return the error of a plugin of ours where one failed, else TensorRT's words."""
    own = _failures.kept()
    if own is not None:
        return type(own)(own.what, where=own.where, expected=own.expected, got=own.got, hint=own.hint)
    return UnsupportedError(what, where=where, got="\n    ".join(words) or "no reason is given")


def _network_flags(trt: Any, precision: Precision) -> int:  # noqa: ANN401
    """Types are the model's unless a shorter one is allowed, which networks with strict types do not know."""
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    return 1 << int(flag) if flag is not None and precision == "model" else 0


def _flag(trt: Any, precision: Precision) -> Any:  # noqa: ANN401
    found = getattr(trt.BuilderFlag, _FLAGS[precision], None)
    if found is None:
        raise UnsupportedError(
            f"this TensorRT takes the element types of the model only, not {precision}",
            where="build",
            expected="precision='model'",
            got=str(getattr(trt, "__version__", "")),
            hint=f"export the model in {precision}",
        )
    return found


def _mark(network: Any, names: Sequence[str], where: str) -> None:  # noqa: ANN401
    """Make more tensors outputs: a plugin whose results nobody reads between is not fused with what follows."""
    if not names:
        return
    known = {}
    for k in range(network.num_layers):
        layer = network.get_layer(k)
        for j in range(layer.num_outputs):
            tensor = layer.get_output(j)
            known[tensor.name] = tensor
    for name in names:
        if name not in known:
            listed = ", ".join(known)
            raise ArgumentError("the model has no such value", where=where, expected=listed, got=repr(name))
        network.mark_output(known[name])


def _profiles(network: Any, given: Profile | Sequence[Profile], where: str) -> list[Profile]:  # noqa: ANN401
    listed: list[Profile] = [given] if isinstance(given, Mapping) else list(given)
    inputs = [network.get_input(k) for k in range(network.num_inputs)]
    shapes = {one.name: tuple(one.shape) for one in inputs}
    open_inputs = [name for name, shape in shapes.items() if -1 in shape]
    if open_inputs and not listed:
        raise ArgumentError(
            "inputs without fixed sizes need a profile: their smallest, usual and largest shape",
            where=where,
            expected=", ".join(f"{name} {list(shapes[name])}" for name in open_inputs),
            got="no profile",
            hint='profiles={"x": ((1, 8), (4, 8), (16, 8))}',
        )
    for profile in listed:
        for name, three in profile.items():
            _check_profile(name, three, shapes, where)
        if missing := [name for name in open_inputs if name not in profile]:
            raise ArgumentError("a profile lacks inputs", where=where, expected=open_inputs, got=f"no {missing}")
    return listed


def _check_profile(
    name: str, three: Sequence[Sequence[int]], shapes: Mapping[str, tuple[int, ...]], where: str
) -> None:
    if name not in shapes:
        raise ArgumentError("there is no such input", where=where, expected=", ".join(shapes), got=name)
    shape = shapes[name]
    fits = len(three) == 3 and all(len(one) == len(shape) for one in three)
    if fits:
        low, usual, high = three
        fits = all(a <= b <= c and (d in (-1, b)) for a, b, c, d in zip(low, usual, high, shape, strict=True))
    if not fits:
        raise ArgumentError(
            "a profile does not fit its input",
            where=f"{where}, input {name}",
            expected=f"smallest <= usual <= largest shape, each of {list(shape)}",
            got=[list(one) for one in three],
        )


def _optimization(builder: Any, profile: Profile) -> Any:  # noqa: ANN401
    made = builder.create_optimization_profile()
    for name, (low, usual, high) in profile.items():
        made.set_shape(name, tuple(low), tuple(usual), tuple(high))
    return made
