"""ONNX models for TensorRT's parser: nodes of ours become nodes that it finds plugins for, or bodies in their place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from opforge.engines import _nodes
from opforge.engines.tensorrt._fields import counts_text
from opforge.engines.tensorrt._kernels import data_dependent, has_cuda
from opforge.engines.tensorrt._known import PARSER_ATTRIBUTES, UNSUPPORTED
from opforge.engines.tensorrt._names import DTYPE_NAMES, INPUTS, OWN_FIELDS, SCHEMA, PluginId, plugin_id, quick_id
from opforge.engines.tensorrt._register import registered, registered_ids
from opforge.errors import ArgumentError, MissingOperatorError, OpforgeError, UnsupportedError
from opforge.onnx._walk import Place, nodes, opset_versions, standard
from opforge.onnx.checker import Problem, custom_problems
from opforge.schema import Operator, discover, registry
from opforge.schema.lexer import format_literal

if TYPE_CHECKING:
    import onnx

__all__ = ["Plugins", "Route", "check", "prepare", "read"]

Route = Literal["auto", "plugins", "bodies"]
"""How nodes of ours run: by our kernels, as the standard operators of their bodies, or as suits each."""

Plugins = Literal["classes", "decorators"]
"""Which plugins the nodes name: those of `opforge.tensorrt.register`, or of `opforge.tensorrt.register_quick`."""

_ROUTES = ("auto", "plugins", "bodies")
_INT32 = 2**31


def read(model: str | Path | onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """Return a model with its weights, and its name for messages."""
    if isinstance(model, str | Path):
        from opforge.onnx._read import read_model

        return read_model(Path(model)), str(model)
    return model, "model"


def prepare(
    model: str | Path | onnx.ModelProto, *, route: Route = "auto", plugins: Plugins = "classes"
) -> onnx.ModelProto:
    """Return a copy for TensorRT's parser; see `opforge.tensorrt.prepare`."""
    if route not in _ROUTES:
        raise ArgumentError("unknown route", where="prepare", expected=", ".join(_ROUTES), got=repr(route))
    proto, where = read(model)
    problems = check(proto, route=route)
    if problems:
        missing = any("nobody registered" in problem.what for problem in problems)
        kind: type[OpforgeError] = MissingOperatorError if missing else UnsupportedError
        raise kind(
            "TensorRT cannot read this model", where=where, got="".join(f"\n    {problem}" for problem in problems)
        )
    made = _inlined(proto, route)
    name_of = plugin_id if plugins == "classes" else quick_id
    for place in nodes(made):
        operator = _operator(place)
        if operator is not None:
            _rewrite(place.node, operator, name_of(operator))
    return made


def check(
    model: str | Path | onnx.ModelProto,
    *,
    route: Route = "auto",
    trt: Any = None,  # noqa: ANN401 - TensorRT's module
) -> list[Problem]:
    """Return what TensorRT would not find a meaning for, before it is asked; see `opforge.tensorrt.check`."""
    proto, _ = read(model)
    discover()
    problems = custom_problems(proto)
    if problems:
        return problems
    inlined = _inlined(proto, route)
    found = list(_standard_problems(inlined))
    seen: set[str] = set()
    for place in nodes(inlined):
        operator = _operator(place)
        if operator is None:
            continue
        found += _node_problems(place, operator, route)
        if trt is not None and operator.key not in seen:
            seen.add(operator.key)
            found += _creator_problems(trt, place, plugin_id(operator))
    return list(found)


def _label(place: Place) -> str:
    return f"{place.path}, node {place.node.name or place.node.output[0]} ({place.node.domain}::{place.node.op_type})"


def _operator(place: Place) -> Operator | None:
    if standard(place.node.domain):
        return None
    return registry.find(place.node.domain, place.node.op_type, place.opsets.get(place.node.domain))


def _standard_problems(model: onnx.ModelProto) -> Iterator[Problem]:
    for place in nodes(model):
        if standard(place.node.domain) and place.node.op_type in UNSUPPORTED:
            yield Problem(
                f"{place.path}, node {place.node.name or place.node.output[0]} ({place.node.op_type})",
                "TensorRT's parser does not know this standard operator, and looks for a plugin of its name",
                hint="put other operators in its place",
            )


def _node_problems(place: Place, operator: Operator, route: Route) -> Iterator[Problem]:
    reason = _no_plugin(operator)
    if reason:
        what = f"neither body nor plugin: {reason}"
        hint = "give it onnx_body=, or a .cu file among its sources"
        yield Problem(_label(place), what, hint=hint)
    elif route == "bodies":
        yield Problem(_label(place), "it has no body", hint='route="auto" takes a plugin for it')
    for name in (*PARSER_ATTRIBUTES, *OWN_FIELDS):
        if any(attribute.name == name for attribute in operator.signature.attributes):
            yield Problem(_label(place), f"an attribute may not be called {name!r}, which the parser reads itself")
    for variable, dtypes in operator.types.items():
        if not any(dtype.name in DTYPE_NAMES for dtype in dtypes):
            listed = ", ".join(dtype.name for dtype in dtypes)
            yield Problem(_label(place), f"TensorRT has none of the dtypes of {variable}", got=listed)


def _no_plugin(operator: Operator) -> str:
    if data_dependent(operator):
        return "the size of an output depends on data"
    return "" if has_cuda(operator) else "it has no CUDA kernel"


def _creator_problems(trt: Any, place: Place, name: PluginId) -> Iterator[Problem]:  # noqa: ANN401
    if registered(trt, name):
        return
    others = [*registered_ids(trt, name.name), *registered_ids(trt, place.node.op_type)]
    yield Problem(
        _label(place),
        "no plugin is registered under this name, version and namespace",
        expected=str(name),
        got="; ".join(map(str, others)) or "no plugin of this name",
        hint="of.tensorrt.register() registers the plugins of operators, in every process that reads or runs a model",
    )


def _inlined(model: onnx.ModelProto, route: Route) -> onnx.ModelProto:
    """Copy; put bodies in place of the calls that do not run as plugins. The parser finds functions without domain."""
    import onnx

    from opforge.onnx.functions import complete_model
    from opforge.onnx.inline import inline_functions

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    complete_model(copy)
    opsets = opset_versions(copy)
    kept = [(f.domain, f.name) for f in copy.functions if _as_plugin(f, opsets, route)]
    functions = _nodes.kept_functions(copy, kept)
    del copy.functions[:]
    copy.functions.extend(functions)
    return inline_functions(copy) if functions else copy


def _as_plugin(function: onnx.FunctionProto, opsets: dict[str, int], route: Route) -> bool:
    """Whether calls of a function stay nodes, which plugins compute."""
    operator = registry.find(function.domain, function.name, opsets.get(function.domain))
    if operator is None or route == "bodies" or _no_plugin(operator):
        return False
    # TensorRT fuses the standard operators of a body with their neighbours, and an engine with plugins needs our
    # library in every process that runs it.
    return route == "plugins" or any(standard(n.domain) and n.op_type in UNSUPPORTED for n in function.node)


def _rewrite(node: onnx.NodeProto, operator: Operator, name: PluginId) -> None:
    from onnx import helper

    from opforge.onnx.one_node import node_attribute

    signature = operator.signature
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    values = operator.coerce({k: _value(operator, k, value) for k, value in given.items()})
    counts = [0] * len(signature.inputs)
    for place, value in enumerate(node.input):
        if value:
            counts[min(place, len(counts) - 1)] += 1
    present = [value for value in node.input if value]
    node.op_type = name.name
    del node.input[:], node.attribute[:]
    node.input.extend(present)
    for attribute in signature.attributes:
        value = values[attribute.name]
        if _fits(value):
            node.attribute.append(node_attribute(attribute.name, attribute.kind, value))
        else:
            node.attribute.append(node_attribute(attribute.name, "string", format_literal(value)))
    texts = (counts_text(counts), operator.schema_hash, name.version, name.namespace)
    for key, text in zip((INPUTS, SCHEMA, *PARSER_ATTRIBUTES[:2]), texts, strict=True):
        node.attribute.append(node_attribute(key, "string", text))


def _value(operator: Operator, name: str, value: Any) -> object:  # noqa: ANN401 - what onnx holds
    kind = next(attribute.kind for attribute in operator.signature.attributes if attribute.name == name)
    if kind in ("bool", "bools"):
        return bool(value) if kind == "bool" else [bool(one) for one in value]
    if isinstance(value, bytes):
        return value.decode()
    return [one.decode() if isinstance(one, bytes) else one for one in value] if isinstance(value, list) else value


def _fits(value: object) -> bool:
    """Whether the parser hands a value on as it is: it narrows integers to 32 bits, and joins texts."""
    if isinstance(value, tuple):
        return bool(value) and not isinstance(value[0], str) and all(map(_fits, value))
    if isinstance(value, int):
        return -_INT32 <= value < _INT32
    return True
